"""Fake `tritonserver` with a child process, which answers probes and simulates faults on files in
its folder.

Input files: `errors` (all inferences fail, with its text if it has one), `problems` (the
orchestrator rejects all requests), `silent` (no inference is answered), `mute` (nor are metrics),
`unloaded` (no model is loaded), `constant` (the encoder returns the same embedding for every
image), `refuses` (writes its text as an error and exits at start), `waits` (removes the file and
waits for the child's end at start), `swap` (replaces the child process and removes the file).
Output files: `starts` has one line per start, `ended` exists after a graceful stop.
"""

import ctypes
import hashlib
import json
import os
import signal
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(os.environ["FAKE_TRITON"])
PR_SET_NAME = 15


def exists(name: str) -> bool:
    return (FOLDER / name).exists()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        while exists("mute"):
            time.sleep(0.05)
        if self.path.endswith("/ready"):
            self.answer(400 if exists("unloaded") else 200, b"")
            return
        if self.path == "/v2":
            self.answer(200, b'{"name": "triton", "version": "2.51.0", "extensions": []}')
            return
        if self.path == "/v2/models/mobile_sam_encoder":
            images = {"name": "images", "datatype": "UINT8", "shape": [-1, 1024, 1024, 3]}
            sizes = {"name": "sizes_hw", "datatype": "INT32", "shape": [-1, 2]}
            embedding = {"name": "image_embeddings", "datatype": "FP16", "shape": [-1, 64, 64, 256]}
            self.answer(
                200, json.dumps({"inputs": [images, sizes], "outputs": [embedding]}).encode()
            )
            return
        lines = [
            f'mobile_sam_loaded_timestamp_seconds{{descriptor="{{\\"side\\":1}}",{labels}}} 1'
            for labels in (
                'model="mobile_sam_everything",encoder="an engine",decoder="a third"',
                'encoder="an engine",decoder="another",model="mobile_sam"',
            )
        ]
        lines += ['nv_inference_request_success{model="mobile_sam",version="1"} 7']
        self.answer(200, "\n".join([*lines, ""]).encode())

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["x-mobile-sam-triton-key"] != "key":
            self.answer(403, b'{"error": "This API is restricted"}')
            return
        while exists("silent"):
            time.sleep(0.05)
        if exists("unloaded"):
            self.answer(400, b'{"error": "Request for unknown model"}')
            return
        if exists("errors"):
            self.answer(
                500, json.dumps({"error": (FOLDER / "errors").read_text() or "broken"}).encode()
            )
            return
        outputs = json.loads(data[: int(self.headers["Inference-Header-Content-Length"])])[
            "outputs"
        ]
        (name,) = (output["name"] for output in outputs)
        problem = b'{"problem": {"status": 422}}' if exists("problems") else b"{}"
        kind, value = {
            "outcome": ("BYTES", struct.pack("<I", len(problem)) + problem),
            "image_embeddings": (
                "FP16",
                bytes(32) if exists("constant") else hashlib.sha256(data).digest(),
            ),
            "low_res_masks": ("FP32", struct.pack("<2f", -3, 2)),
        }[name]
        shape = [len(value) // {"BYTES": len(value), "FP16": 2, "FP32": 4}[kind]]
        described = {
            "name": name,
            "datatype": kind,
            "shape": shape,
            "parameters": {"binary_data_size": len(value)},
        }
        head = json.dumps(
            {"model_name": "a model", "model_version": "1", "outputs": [described]}
        ).encode()
        self.answer(200, head + value, {"Inference-Header-Content-Length": str(len(head))})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


def start_child() -> int:
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"triton_python_backend_stub")
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if "FAKE_FORK" in os.environ and (fork := os.fork()):
            (FOLDER / "fork").write_text(str(fork))
        signal.pause()
        os._exit(0)
    (FOLDER / "stub").write_text(str(child))
    return child


def main() -> None:
    with (FOLDER / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if exists("refuses"):
        sys.exit((FOLDER / "refuses").read_text() or 1)
    # Before threads start, so that none of them receives it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    child = start_child()
    if exists("waits"):
        (FOLDER / "waits").unlink()
        os.waitpid(child, 0)
    ports = [
        next(arg.split("=")[1] for arg in sys.argv if arg.startswith(name))
        for name in ("--http-port", "--metrics")
    ]
    servers = [ThreadingHTTPServer(("127.0.0.1", int(port)), Handler) for port in ports]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    # After SIGCONT, Python 3.11 returns a zeroed record.
    while (
        found := signal.sigtimedwait([signal.SIGTERM], 0.05)
    ) is None or found.si_signo != signal.SIGTERM:
        if exists("swap"):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            child = start_child()
            (FOLDER / "swap").unlink()
    (FOLDER / "ended").write_text("ended\n")
    os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
