"""Start the service or another server, wait for it, ask it and put load on it; for tests,
benchmarks and tools.

with serving(Path("log"), MOBILE_SAM_ENGINE="onnxruntime") as server:
    server.post(image_id=image_id, pos_coords=[[120, 80]])

The names that most callers need are here; the others are in its modules.
"""

from harness.server import ROOT, Server, launch_server, serving
from harness.waiting import free_ports, seconds_until, wait_until

__all__ = [
    "ROOT",
    "Server",
    "free_ports",
    "launch_server",
    "seconds_until",
    "serving",
    "wait_until",
]
