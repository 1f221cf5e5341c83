"""Triton for a BentoML service with any model repository: setup, start through BentoML, supervision
and shutdown.

triton_runner = embedded.runner(Path(__file__).with_name("model_repository"))
svc = bentoml.legacy.Service("name", runners=[triton_runner])
embedded.prepare(svc)

With EXAMPLE_OPEN=8000, Triton listens on this machine's ports 8000 (HTTP), 8001 (gRPC) and 8002
(metrics), where its control API needs no key. MODEL_REPOSITORY is a folder to serve instead of the
service's own.
"""

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import bentoml
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.bento import check_address, set_triton_address
from utils.settings import Settings, SettingsError
from utils.triton import health, installation
from utils.triton.run import METRICS_PORT_VARIABLE, RunState, check_shared_memory, clean_up
from utils.triton.runner import CONTROL_APIS, make_runner, server_flags

# Only the older of BentoML's two APIs has the Triton runner.
warnings.filterwarnings("ignore", ".*is deprecated since BentoML v1.4")

OPEN = int(os.environ.get("EXAMPLE_OPEN") or 0)
HTTP_PORT, GRPC_PORT, METRICS_PORT = OPEN, OPEN + 1, OPEN + 2
POLICY = "default-src 'self' 'unsafe-inline' data:"
_locks: list[TextIO] = []
"""The lock of this API worker, which it holds until it ends."""


def runner(repository: Path, *, auto_complete: bool = False) -> Any:
    """Set up Triton and return a `bentoml.triton.Runner` named "triton".

    Args:
        repository: model repository, a folder per model.
        auto_complete: let models complete their own config.pbtxt; always, if Triton is open.

    Raises:
        SystemExit: Triton cannot be set up on this machine.
    """
    try:
        installation.prepare(Settings.from_environment().cache_dir)
    except (SettingsError, installation.TritonSetupError) as error:
        raise SystemExit(f"error: {error}") from None
    if OPEN:
        os.environ.setdefault(METRICS_PORT_VARIABLE, str(METRICS_PORT))
    replace(RunState.current(), probe_models=False).publish()
    mode = "explicit" if OPEN else "none"
    flags = server_flags(
        mode, auto_complete=auto_complete or bool(OPEN), restricted="" if OPEN else CONTROL_APIS
    )
    made = make_runner(os.environ.get("MODEL_REPOSITORY") or repository, flags)
    if OPEN:
        # After BentoML's own flags, which disable gRPC.
        made.cli_args.extend(
            ["--allow-grpc=true", "--grpc-address=127.0.0.1", f"--grpc-port={GRPC_PORT}"]
        )
        set_triton_address(made, f"127.0.0.1:{HTTP_PORT}")
    return made


def prepare(service: bentoml.legacy.Service) -> None:
    """Check this machine before the service starts, have Triton run until all requests have ended,
    and keep the Swagger page from loading anything from other hosts.
    """
    service.on_deployment(check)
    service.on_startup(hold_lock)
    service.add_asgi_middleware(own_content_only)


def hold_lock(_: Any) -> None:
    """Hold the lock of an API worker: the watchdog stops Triton once all workers have ended."""
    _locks.append(health.lock_requests(RunState.current().health_file))


def own_content_only(app: ASGIApp) -> ASGIApp:
    """Add a Content-Security-Policy to an application: BentoML's page loads scripts and images
    from other hosts.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = POLICY
            await send(message)

        await app(scope, receive, send_with_policy)

    return wrapped


def check() -> None:
    """Clean up after killed services, and exit with an error if Triton lacks shared memory or a
    port.
    """
    clean_up()
    if OPEN:
        for port in (HTTP_PORT, GRPC_PORT, METRICS_PORT):
            check_address("127.0.0.1", port)
        print(
            f"Triton, with its control API: HTTP http://127.0.0.1:{HTTP_PORT}, gRPC"
            f" 127.0.0.1:{GRPC_PORT}, metrics http://127.0.0.1:{METRICS_PORT}/metrics"
        )
    try:
        check_shared_memory()
    except installation.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None
