"""Servers of images for tools that name a URL: one that answers at once, and one that drips.

with origin(photo) as quick, origin(photo, every_s=1.0) as dripping:
    print(f"{quick}/1.jpg")
"""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Origin(ThreadingHTTPServer):
    """Its connections end before `server_close` returns."""

    daemon_threads = False
    request_queue_size = 128


@contextmanager
def origin(file: bytes, every_s: float = 0.0) -> Iterator[str]:
    """Serve a file at every path until the context ends; yield the origin, such as
    `http://127.0.0.1:8000`.

    Args:
        file: the file.
        every_s: seconds between two bytes of it; 0: everything at once.
    """
    over = threading.Event()

    class Answer(BaseHTTPRequestHandler):
        timeout = 5.0  # for a caller who sends nothing

        def do_GET(self) -> None:
            size = 1 if every_s else len(file)
            with contextlib.suppress(OSError):  # the caller has left
                self.send_response(200)
                self.send_header("Content-Length", str(len(file)))
                self.end_headers()
                for start in range(0, len(file), size):
                    self.wfile.write(file[start : start + size])
                    if over.wait(every_s):
                        return

        def log_message(self, *_: object) -> None:
            pass

    with Origin(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()
            thread.join()
