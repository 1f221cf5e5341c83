from pathlib import Path

import pytest

from mobile_sam_onnx import DownloadError
from mobile_sam_onnx.download import cache_directory, cached, download
from mobile_sam_onnx.sources import Source
from tests.unit.mobile_sam_onnx.file_server import CONTENT, DIGEST, Server, source


def test_file_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    path = download(source(server), tmp_path / "cache")
    assert path.read_bytes() == CONTENT
    assert download(source(server), tmp_path / "cache") == path
    assert server.asked == [None]
    assert [entry.name for entry in path.parent.iterdir()] == ["weights.pt"]


def test_interrupted_download_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut = 1000
    with pytest.raises(DownloadError, match="got 1000: run again to resume"):
        download(source(server), tmp_path)
    server.cut = None
    assert download(source(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-"]


def test_server_without_ranges_sends_the_whole_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / "weights.pt.part").write_bytes(b"old")
    server.ranges = False
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_file_with_a_wrong_hash_is_rejected_and_removed(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"expected SHA-256 {'0' * 64} .* got {DIGEST}"):
        download(source(server, digest="0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_altered_cached_file_is_downloaded_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"x" * len(CONTENT))
    assert cached(source(server), tmp_path) is None
    assert download(source(server), tmp_path).read_bytes() == CONTENT


def test_http_error_is_one_line(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cannot download http.*: HTTP status 404$"):
        download(source(server, "other.pt"), tmp_path)


def test_unreachable_server_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cannot connect$"):
        download(Source("http://127.0.0.1:1/weights.pt", 1, DIGEST), tmp_path)


def test_unwritable_cache_is_an_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="cannot write to"):
        download(source(server), tmp_path / "file" / "cache")


def test_cache_directory_depends_on_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOBILE_SAM_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "mobile-sam-triton"
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
