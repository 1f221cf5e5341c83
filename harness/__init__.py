"""Start the service or another server, wait for it, ask it and put load on it; for tests, benchmarks and tools.

with serving(Path("log"), MOBILE_SAM_ENGINE="onnxruntime") as server:
    server.post(image_id=image_id, pos_coords=[[120, 80]])
"""

from harness.server import (
    READY_TIMEOUT_S,
    ROOT,
    STOP_TIMEOUT_S,
    Server,
    ServerError,
    base_environment,
    cpu_seconds,
    embedding_counts,
    launch,
    launch_server,
    resident_bytes,
    serve_expecting_failure,
    serving,
    start_server,
    until_end,
    wait_for_stopped_servers,
)
from harness.waiting import free_ports, seconds_until, wait_until

__all__ = [
    "READY_TIMEOUT_S",
    "ROOT",
    "STOP_TIMEOUT_S",
    "Server",
    "ServerError",
    "base_environment",
    "cpu_seconds",
    "embedding_counts",
    "free_ports",
    "launch",
    "launch_server",
    "resident_bytes",
    "seconds_until",
    "serve_expecting_failure",
    "serving",
    "start_server",
    "until_end",
    "wait_for_stopped_servers",
    "wait_until",
]
