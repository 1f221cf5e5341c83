"""Stand-in for CVAT's server: the endpoints that its command line asks for, and a record of what it sends."""

import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

VERSION = "2.80.0"
TASK_ID, FUNCTION_ID = 1, 5
TOKEN = "token-of-a-user"
CHUNK_SIZE = 2
"""Frames per chunk."""


@dataclass
class CvatServer:
    """A task with images, and a native function with a queue of requests."""

    frames: Sequence[bytes]
    """PNG files."""
    labels: Sequence[dict[str, Any]]
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Annotation requests that the agent has yet to get."""
    received: list[tuple[str, str, Any]] = field(default_factory=list)
    """Method, path with query, and body of requests that change something."""
    function: dict[str, Any] = field(default_factory=dict)
    """The function as created."""
    url: str = ""

    def reply(self, method: str, target: str, body: Any) -> Any:
        """Return the document or bytes to answer with, or None if there is nothing at the address."""
        parts = urlsplit(unquote(target))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        task, queue = f"/api/tasks/{TASK_ID}", f"/api/functions/queues/function:{FUNCTION_ID}/requests"
        if method != "GET" and not parts.path.endswith("/acquire"):
            self.received.append((method, unquote(target), body))
        match method, parts.path.rstrip("/"):
            case "GET", "/api/server/about":
                return {"name": "CVAT", "description": "", "version": VERSION, "logo_url": "", "subtitle": ""}
            case "GET", path if path == task:
                return self._task()
            case "GET", "/api/labels":
                results = [{"attributes": [], "sublabels": [], "type": "any", **label} for label in self.labels]
                return {"count": len(results), "next": None, "previous": None, "results": results}
            case "GET", path if path == f"{task}/data/meta":
                names = [{"name": name, "related_files": 0} for name in self._names()]
                return {"chunks_updated_date": "2026-01-01T00:00:00Z", "frames": names, "deleted_frames": []}
            case "GET", path if path == f"{task}/data":
                number = int(query["number"])
                return self._chunk(number) if query["type"] == "chunk" else self.frames[number]
            case (("PATCH" | "PUT"), path) if path == f"{task}/annotations":
                return body
            case "POST", "/api/functions":
                self.function = {"id": FUNCTION_ID, "min_neg_points": -1, "startswith_box": False, **body}
                return self.function
            case "GET", path if path == f"/api/functions/{FUNCTION_ID}":
                return {"startswith_box_optional": False, **self.function}
            case "POST", path if path == f"{queue}/acquire":
                interactive = body["request_category"] == "interactive"
                return {"ar_assignment": self.requests.pop(0) if interactive and self.requests else None}
            case "POST", path if re.fullmatch(rf"{re.escape(queue)}/\w+/(complete|fail|update)", path):
                return {}
        return None

    def _names(self) -> list[str]:
        return [f"frame_{number}.png" for number in range(len(self.frames))]

    def _task(self) -> dict[str, Any]:
        return {
            "id": TASK_ID,
            "name": "a task",
            "organization": None,
            "jobs": {"completed": 0, "validation": 0, "count": 1},
            "labels": {},
            "size": len(self.frames),
            "mode": "annotation",
            "data_chunk_size": CHUNK_SIZE,
            "data_original_chunk_type": "imageset",
            "updated_date": "2026-01-01T00:00:00Z",
        }

    def _chunk(self, number: int) -> bytes:
        file = io.BytesIO()
        first = number * CHUNK_SIZE
        with zipfile.ZipFile(file, "w") as archive:
            for name, frame in [*zip(self._names(), self.frames, strict=True)][first : first + CHUNK_SIZE]:
                archive.writestr(name, frame)
        return file.getvalue()


@contextmanager
def cvat_server(frames: Sequence[bytes], labels: Sequence[dict[str, Any]]) -> Iterator[CvatServer]:
    """Run a stand-in on a free port."""
    state = CvatServer(frames, labels)

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._answer(401, {"detail": "no token"})
                return
            reply = state.reply(self.command, self.path, json.loads(body) if body else None)
            self._answer(404 if reply is None else 200, {"detail": "not found"} if reply is None else reply)

        do_GET = do_POST = do_PATCH = do_PUT = _handle  # noqa: N815

        def _answer(self, status: int, reply: Any) -> None:
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            content_type = "application/octet-stream" if isinstance(reply, bytes) else "application/json"
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
