import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mobile_sam_onnx import DownloadError
from mobile_sam_onnx.download import cache_directory, cached, download
from mobile_sam_onnx.sources import Source

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    ranges: bool = True
    cut: int | None = None
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        if self.path != "/weights.pt":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        body = CONTENT[start : self.server.cut]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def source(server: Server, name: str = "weights.pt", digest: str = DIGEST) -> Source:
    return Source(f"http://127.0.0.1:{server.server_port}/{name}", len(CONTENT), digest)


def test_a_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    path = download(source(server), tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert download(source(server), tmp_path / "cache") == path
    assert server.asked == [None]
    assert [entry.name for entry in path.parent.iterdir()] == ["weights.pt"]


def test_an_interrupted_download_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut = 1000
    with pytest.raises(DownloadError, match="got 1000: run again to resume"):
        download(source(server), tmp_path)
    server.cut = None
    assert download(source(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-"]


def test_a_server_without_ranges_sends_everything_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "weights.pt.part").write_bytes(b"old")
    server.ranges = False
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_a_wrong_hash_is_refused_and_not_kept(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"expected SHA-256 {'0' * 64} .* got {DIGEST}"):
        download(source(server, digest="0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_altered_cached_file_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"x" * len(CONTENT))
    assert cached(source(server), tmp_path) is None
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_an_http_error_is_one_line(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cannot download http.*: HTTP status 404$"):
        download(source(server, "other.pt"), tmp_path)


def test_an_unreachable_server_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cannot connect$"):
        download(Source("http://127.0.0.1:1/weights.pt", 1, DIGEST), tmp_path)


def test_a_cache_that_cannot_be_written_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="cannot write to"):
        download(source(server), tmp_path / "file" / "cache")


def test_the_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOBILE_SAM_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "mobile-sam-triton"
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
