import json
import shutil
from collections import OrderedDict

import numpy as np
import pytest

from examples.classification import build, prepare
from examples.classification.architecture import NARROW, random_state
from mobile_sam_onnx import DownloadError
from mobile_sam_onnx.download import download as fetch
from mobile_sam_onnx.identity import sha256_of
from mobile_sam_onnx.sources import Source
from tests.unit.examples.classification.modules import REPOSITORY


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "models"
    (folder / build.CONFIG).parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / build.CONFIG, folder / build.CONFIG)
    monkeypatch.setattr(prepare, "REPOSITORY", folder)
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("WEIGHTS", "LABELS"):
        monkeypatch.delenv(name, raising=False)
    # A port without a listener.
    monkeypatch.setattr(prepare, "OFFICIAL", Source("http://127.0.0.1:9/net.npz", 1, prepare.OFFICIAL.sha256))
    return folder


def name_in(repository):
    return json.loads((repository / build.RECORD).read_text())["name"]


def test_failed_download_falls_back_to_a_narrow_network_with_a_warning(repository, capsys):
    assert prepare.main() == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("note: no LABELS file: classes are named by number")
    assert lines[1].startswith("warning: cannot download http://127.0.0.1:9/net.npz: cannot connect")
    assert lines[1].endswith("serving an untrained narrow network instead, whose answers are meaningless")
    assert lines[2] == f"{repository} holds random weights"
    assert name_in(repository) == "random"
    assert (repository / build.NET).stat().st_size < 5_000_000


def test_failed_download_of_requested_official_weights_is_an_error(repository, monkeypatch, capsys):
    monkeypatch.setenv("WEIGHTS", "official")
    assert prepare.main() == 1
    assert "error: cannot download" in capsys.readouterr().err
    assert not (repository / build.RECORD).exists()


def test_download_is_checked_against_the_published_digest_prefix(repository, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    np.savez(cache / "net.npz", **OrderedDict(random_state(NARROW)))
    path = cache / "net.npz"
    digest = sha256_of(path)
    good = Source("http://127.0.0.1:9/net.npz", path.stat().st_size, digest[:8])
    monkeypatch.setattr(prepare, "OFFICIAL", good)
    prepare.prepare("official", None, repository)
    assert name_in(repository) == "official"
    other = Source(good.url, good.size, ("0" if digest[0] != "0" else "1") + digest[1:8])
    with pytest.raises(DownloadError):
        fetch(other, cache)


def test_custom_weights_are_named_after_their_file(repository, tmp_path, monkeypatch):
    np.savez(tmp_path / "mine.npz", **random_state(NARROW, seed=3))
    monkeypatch.setenv("WEIGHTS", str(tmp_path / "mine.npz"))
    assert prepare.main() == 0
    assert name_in(repository) == "mine.npz"


def test_existing_export_is_not_repeated(repository, monkeypatch, capsys):
    monkeypatch.setenv("WEIGHTS", "random")
    prepare.main()
    exported = (repository / build.NET).stat().st_mtime_ns
    prepare.main()
    assert (repository / build.NET).stat().st_mtime_ns == exported


def test_official_digest_is_part_of_the_file_name():
    assert prepare.OFFICIAL.url.endswith(f"wide_resnet101_2-{prepare.OFFICIAL.sha256}.pth")
