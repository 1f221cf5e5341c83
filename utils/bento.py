"""Every use of private parts of BentoML and its process manager circus, with a check at start-up.

`HOOKS` lists them, and those of uvicorn that `utils.edge` uses. `check_hooks` runs before the
service is deployed, and stops it with one line if an update has moved one of them.
"""

import contextlib
import errno
import importlib
import json
import os
import socket
import threading
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import bentoml
from bentoml import serving
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.utils import circus
from opentelemetry.util.http import ExcludeList
from tritonclient.http.aio import InferenceServerClient

from utils.observability.logs import logger

HOOKS = {
    "bentoml._internal.configuration.containers:BentoMLContainer": (
        "api_server_config prometheus_multiproc_dir remote_runner_mapping tracing_excluded_urls"
    ),
    "bentoml._internal.utils.circus:Arbiter": "exit_stack stop",
    "bentoml:serving": "API_SERVER_NAME find_triton_binary",
    "bentoml.legacy:Service": "openapi_spec",
    "bentoml._internal.runner.runner_handle.remote:TritonRunnerHandle": "_http_client_cache",
    "bentoml.triton:Runner": "protocol_address",
    "circus.arbiter:Arbiter": "_exclusive_running_command _stopping loop sockets start watchers",
    "circus.watcher:Watcher": "stop_children",
    "uvicorn.protocols.http.h11_impl:H11Protocol": (  # in `utils.edge.connections`
        "client conn connections cycle flow handle_events logger loop on_response_complete"
        " send_400_response transport"
    ),
    "uvicorn:Server": "config handle_exit server_state",  # in `utils.edge.lifecycle`
}
"""Private parts in use: `module:name` of a class or module, and its attributes or those that its
`__init__` sets."""


def check_hooks() -> None:
    """Check that the installed packages have everything in `HOOKS`.

    Raises:
        SystemExit: a one-line error; something is missing.
    """
    for part, attributes in HOOKS.items():
        module, _, name = part.partition(":")
        try:
            target = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            missing = name
        else:
            inits = [
                getattr(kind.__init__, "__code__", None) for kind in getattr(target, "__mro__", ())
            ]
            set_by_init = {attribute for code in inits if code for attribute in code.co_names}
            missing = ", ".join(sorted(set(attributes.split()) - set(dir(target)) - set_by_init))
        if missing:
            raise SystemExit(
                f"error: unsupported version of {module.partition('.')[0]}: {module} has no"
                f" {missing}"
            )


BENTOML_TIMEOUT_S = 60
CONTAINERIZED = "BENTOML_CONTAINERIZED"
STOP_RETRY_INTERVAL_S = 0.1
"""Time between two attempts to stop a busy process manager."""


def configure_bentoml(metrics_folder: Path) -> None:
    """Replace settings that BentoML reads from its configuration file before the service is
    imported.

    Its timeout and concurrency limit are off: their responses bypass the service's own limits and
    errors. Its spans are off too: they take time, are never sent and would come between the
    exported ones. Metrics files are in a folder of this service: by default all services of a user
    share one, and each of them clears it at start. Dead processes are replaced in containers too;
    by default that happens only outside of them.
    """
    traffic = BentoMLContainer.api_server_config.traffic
    timeout, concurrency = traffic.timeout.get(), traffic.max_concurrency.get()
    if timeout not in {None, BENTOML_TIMEOUT_S} or concurrency is not None:
        logger.warning(
            "BentoML's limits (timeout %s, max_concurrency %s) are not used: set"
            " MOBILE_SAM_INFERENCE_TIMEOUT and MOBILE_SAM_MAX_REQUESTS",
            timeout,
            concurrency,
        )
    traffic.timeout.set(None)
    traffic.max_concurrency.set(None)
    BentoMLContainer.tracing_excluded_urls.set(ExcludeList([".*"]))
    BentoMLContainer.prometheus_multiproc_dir.set(str(metrics_folder))
    os.environ.pop(CONTAINERIZED, None)


def set_up_process_manager(
    folder: Path,
    failure: Callable[[], str],
    wait_until_ready: Callable[[Callable[[], str]], None],
    public_warning: str = "",
) -> None:
    """Make BentoML's process manager listen on sockets in a private folder, and exit with one line
    after an error.

    The process manager starts any program for any client, and by default it listens on TCP ports of
    this machine. If the service's port is in use, its default output includes a traceback; if a
    process cannot start, it tries again without end.

    Args:
        folder: folder that only this user can enter.
        failure: called after the processes have ended; returns the error that ended them, or an
            empty string.
        wait_until_ready: called in a thread when the processes are started, with a function that
            returns the service's URL.
        public_warning: warning for the log if the service listens on another address than this
            machine's own; the address replaces `{address}`.
    """
    endpoints = {
        "endpoint": f"ipc://{folder}/manager",
        "pubsub_endpoint": f"ipc://{folder}/manager-events",
    }

    class Arbiter(circus.Arbiter):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            for listener in options["sockets"]:
                if listener.port:  # Unix sockets and sockets on any free port have none
                    check_address(listener.host, listener.port)
            super().__init__(*arguments, **{**options, **endpoints})
            for watcher in self.watchers:
                watcher.stop_children = (
                    False  # the watchdog's child is Triton, which still has requests
                )

        def start(self, *arguments: Any, **options: Any) -> Any:
            """Run until the service has stopped."""
            listener = self.sockets.get(serving.API_SERVER_NAME)
            if public_warning and listener and not ip_address(listener.host).is_loopback:
                logger.warning(
                    "%s", public_warning.replace("{address}", f"{listener.host}:{listener.port}")
                )
            threading.Thread(target=wait_until_ready, args=[self.url], daemon=True).start()
            ended = super().start(*arguments, **options)
            if reason := failure():
                raise SystemExit(f"error: {reason}")
            return ended

        def url(self) -> str:
            """Return the URL of the service on this machine."""
            listener = self.sockets[serving.API_SERVER_NAME]
            scheme = (
                "https"
                if any("--ssl-certfile" in watcher.args for watcher in self.watchers)
                else "http"
            )
            host = "localhost" if ip_address(listener.host).is_unspecified else listener.host
            return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.port}"

        def stop(self) -> Any:
            """Stop even without the temporary folder or while a worker starts, when BentoML
            ignores the signal.
            """
            with contextlib.suppress(FileNotFoundError):
                self.exit_stack.close()
            if self._exclusive_running_command is not None and not self._stopping:
                self.loop.call_later(STOP_RETRY_INTERVAL_S, self.stop)
                return None
            return super().stop()

    circus.Arbiter = Arbiter


def check_address(host: str, port: int) -> None:
    """Check that an address is free.

    Raises:
        SystemExit: it is in use, or is not an address of this machine.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        reason = f"cannot listen on {host}:{port}: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            reason = (
                f"port {port} of {host} is in use: stop the program there or choose another port"
            )
        raise SystemExit(f"error: {reason}") from None


def refuse_to_serve(reason: str) -> None:
    """Make `bentoml serve` exit with an error message; `bentoml build`, which also imports the
    service, still works.

    BentoML searches for `tritonserver` before it calls the service's hooks, and fails with a
    traceback without one.
    """

    def refuse() -> str:
        raise SystemExit(f"error: {reason}")

    serving.find_triton_binary = refuse


def service_with_document(name: str, runner: Any, document: bytes) -> Any:
    """Return a `bentoml.legacy.Service` with another OpenAPI document (JSON) than BentoML's,
    also in a Bento.
    """

    class Service(bentoml.legacy.Service):  # type: ignore[misc]
        openapi_spec = property(lambda _: json.loads(document))

    return Service(name, runners=[runner])


def set_triton_address(runner: Any, address: str) -> None:
    """Set the address HOST:PORT of the Triton of a `bentoml.triton.Runner` that has not been
    started.
    """
    vars(runner)["protocol_address"] = address  # a cached property


def triton_address(runner: str) -> str:
    """Return host and port of a runner's Triton.

    Raises:
        LookupError: the process is not an API worker of a running service.
    """
    return str(BentoMLContainer.remote_runner_mapping.get()[runner])


def connect(runner: Any) -> None:
    """Give a worker's runner a client of Triton without a time limit: BentoML's gives up after
    60 s.
    """
    runner._runner_handle._http_client_cache = InferenceServerClient(
        triton_address(runner.name), conn_timeout=None
    )


async def disconnect(runner: Any) -> None:
    """Close a worker's connections to Triton: BentoML leaves them open, and Triton waits for
    them when it stops.
    """
    await runner._runner_handle.client.close()


def static_files() -> frozenset[str]:
    """Return the URL paths of BentoML's files for the Swagger page."""
    folder = Path(bentoml.__file__).parent / "_internal" / "server" / "static_content"
    return frozenset(
        f"/static_content/{entry.name}" for entry in folder.iterdir() if entry.is_file()
    )
