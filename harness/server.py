"""Start, ask, inspect and stop servers, each in its own process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from harness.load import Request, json_request
from harness.waiting import free_ports, seconds_until, wait_until

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S, STOP_TIMEOUT_S = 300, 120
SERVICE = "service.py:svc"
SHARED_MEMORY = Path("/dev/shm")
_stopping: list[Server] = []


class ServerError(RuntimeError):
    """A server did not become ready; the message has the end of its log."""


@dataclass
class Server:
    """Server on 127.0.0.1 with all its processes."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    metrics_url: str = ""
    """URL of Triton's metrics; only for the service."""

    @property
    def port(self) -> int:
        """Return the port of the URL."""
        return int(self.url.rpartition(":")[2])

    def post(self, path: str = "/mobile_sam", **fields: object) -> requests.Response:
        """Send a JSON request."""
        return requests.post(f"{self.url}{path}", json=fields, timeout=60)

    def send(self, request: Request, *, stream: bool = False) -> requests.Response:
        """Send a request that is ready; `stream` as for Requests."""
        method, url, headers = (
            "GET" if request.body is None else "POST",
            self.url + request.path,
            request.headers,
        )
        return requests.request(
            method, url, data=request.content(), headers=dict(headers), stream=stream, timeout=60
        )

    @contextlib.contextmanager
    def sending(self, path: str = "/mobile_sam", **fields: object) -> Iterator[socket.socket]:
        """Send a request without waiting for the answer; yield its connection, which is closed
        at the end.
        """
        with socket.create_connection(("127.0.0.1", self.port), READY_TIMEOUT_S) as connection:
            connection.sendall(json_request(fields, path).data())
            yield connection

    def readiness(self) -> int:
        """Return the status of `/readyz`, or 0 if there is no answer within 10 s."""
        try:
            return requests.get(f"{self.url}/readyz", timeout=10).status_code
        except requests.RequestException:
            return 0

    def embeddings(self) -> dict[str, int]:
        """Return the number of embeddings since start-up by source: `found`, `shared`,
        `encoded`.
        """
        return embedding_counts(self.metrics_url)

    def count(self, series: str) -> int:
        """Return the value of a series of Triton's metrics, with its labels, on any one GPU; 0
        without it.
        """
        text = requests.get(self.metrics_url, timeout=60).text
        text = re.sub(r'gpu_uuid="[^"]*",', "", text)
        match = re.search(rf"^{re.escape(series)} (\d+)", text, re.MULTILINE)
        return int(match[1]) if match else 0

    def wait_for_metric(self, series: str) -> str:
        """Wait until a series that begins so is above 0 in `/metrics`, and return the whole text.

        Stage times are reported up to a second late, and each API worker's text may be a second
        old.
        """
        text = ""

        def counted() -> bool:
            nonlocal text
            text = requests.get(f"{self.url}/metrics", timeout=60).text
            values = re.findall(rf"^{re.escape(series)}.* (\S+)$", text, re.MULTILINE)
            return any(float(value) > 0 for value in values)

        wait_until(counted, READY_TIMEOUT_S, f"no {series} above 0 in /metrics")
        return text

    def family(self) -> list[psutil.Process]:
        """Return all processes, the main process first."""
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]

    def triton(self) -> psutil.Process:
        """Return the tritonserver process, below the watchdog."""
        return self._find(lambda process: process.name() == "tritonserver")[0]

    def stubs(self, model: str = "") -> list[psutil.Process]:
        """Return the processes of a Python model, or of all Python models."""
        part = f"/{model}/1/" if model else ""
        return self._find(
            lambda process: (
                process.name().startswith("triton_python") and part in " ".join(process.cmdline())
            )
        )

    def workers(self) -> list[psutil.Process]:
        """Return the API workers."""
        return self._find(lambda process: "http_api_server" in " ".join(process.cmdline()))

    def regions(self) -> list[Path]:
        """Return the regions of shared memory."""
        return [entry for entry in SHARED_MEMORY.iterdir() if f"_{self.process.pid}_" in entry.name]

    def _find(self, wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        processes = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE and wanted(process):
                    processes.append(process)
        return processes

    def wait_until_ready(self) -> Server:
        """Return the server itself once it is ready.

        Raises:
            ServerError: it ended, or is not ready in time.
        """

        def settled() -> bool:
            return self.process.poll() is not None or self.readiness() == 200

        if (
            seconds_until(settled, READY_TIMEOUT_S, 0.1) > READY_TIMEOUT_S
            or self.process.poll() is not None
        ):
            self.kill()
            raise ServerError(
                f"the server did not become ready; its log:\n{self.log.read_text()[-5000:]}"
            )
        return self

    def kill(self) -> None:
        """Kill all processes, the main process first."""
        if self.process.poll() is None:
            for process in self.family():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, wait for the process to exit and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def request_stop(self) -> None:
        """Send SIGTERM and return at once, as a stop takes seconds: `wait_for_stopped_servers`
        waits for the exit.

        Does nothing after `kill`.
        """
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            _stopping.append(self)


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """Return the CPU time of the processes that are alive."""
    return sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())


def proportional_bytes(processes: list[psutil.Process]) -> int:
    """Return the sum of the processes' proportional set sizes: a shared page counts once."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
    return total


def resident_bytes(processes: list[psutil.Process]) -> int:
    """Return the sum of the processes' resident memory; shared pages count in each."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def embedding_counts(metrics_url: str) -> dict[str, int]:
    """Return the number of embeddings by source, from Triton's metrics: `found`, `shared`,
    `encoded`.
    """
    text = requests.get(metrics_url, timeout=60).text
    counted = re.findall(
        r'^mobile_sam_embeddings_total\{source="(\w+)"\} (\d+)', text, re.MULTILINE
    )
    return {"found": 0, "shared": 0, "encoded": 0} | {
        source: int(count) for source, count in counted
    }


def wait_for_stopped_servers() -> dict[Path, int]:
    """Wait for all servers that were asked to stop; return their exit statuses by log file."""
    statuses = {server.log: server.process.wait(STOP_TIMEOUT_S) for server in _stopping}
    _stopping.clear()
    return statuses


def base_environment() -> dict[str, str]:
    """Return this process's environment without the variables that the processes of one service
    share.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MOBILE_SAM_TRITON_")
    }


def launch(
    log: Path,
    command: Sequence[str],
    port: int | None = None,
    wrapper: Sequence[str] = (),
    **environment: str,
) -> Server:
    """Launch a server without waiting for it, so that several can start at once.

    Args:
        log: file for its output.
        command: program beside this Python, or a path, and arguments; `--host` and `--port` are
            appended.
        port: port on 127.0.0.1; a free one by default.
        wrapper: a command that executes the command appended to it, such as `prlimit --nofile=256
            --`.
        environment: variables added to this process's environment.
    """
    port = port or free_ports(1)[0]
    program = str(Path(sys.executable).parent / command[0])
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*wrapper, program, *command[1:], "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={**base_environment(), "BENTOML_DO_NOT_TRACK": "True", **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(process, f"http://127.0.0.1:{port}", log)


def launch_server(
    log: Path,
    target: str = SERVICE,
    port: int | None = None,
    wrapper: Sequence[str] = (),
    **environment: str,
) -> Server:
    """Launch a BentoML service; embeddings go to a folder beside its log unless `environment`
    sets another.
    """
    (metrics_port,) = free_ports(1)
    defaults = {
        "MOBILE_SAM_EMBEDDING_CACHE_DIR": str(log.parent / "embeddings"),
        "MOBILE_SAM_TRITON_METRICS_PORT": str(metrics_port),
    }
    server = launch(log, ["bentoml", "serve", target], port, wrapper, **defaults | environment)
    server.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
    return server


@contextlib.contextmanager
def until_end(server: Server) -> Iterator[Server]:
    """Wait until a server is ready; ask it to stop on exit."""
    try:
        yield server.wait_until_ready()
    finally:
        server.request_stop()


def serving(
    log: Path, target: str = SERVICE, wrapper: Sequence[str] = (), **environment: str
) -> contextlib.AbstractContextManager[Server]:
    """Start a BentoML service; ask it to stop on exit."""
    return until_end(launch_server(log, target, None, wrapper, **environment))


def serve_expecting_failure(
    port: int | None = None, target: str = SERVICE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start the service where it cannot run and wait until it exits; `port` defaults to a free
    one.
    """
    address = ["--host", "127.0.0.1", "--port", str(port or free_ports(1)[0])]
    return subprocess.run(
        [Path(sys.executable).parent / "bentoml", "serve", target, *address],
        cwd=ROOT,
        env={**base_environment(), "BENTOML_DO_NOT_TRACK": "True", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=READY_TIMEOUT_S,
    )
