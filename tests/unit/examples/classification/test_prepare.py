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
    # Nobody listens there.
    monkeypatch.setattr(prepare, "OFFICIAL", Source("http://127.0.0.1:9/net.npz", 1, prepare.OFFICIAL.sha256))
    return folder


def name_in(repository):
    return json.loads((repository / build.RECORD).read_text())["name"]


def test_where_the_official_weights_cannot_be_had_it_says_so_and_makes_a_narrow_net(repository, capsys):
    assert prepare.main() == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("note: no LABELS file: classes are called by their numbers")
    assert told[1].startswith("warning: cannot download http://127.0.0.1:9/net.npz: cannot connect")
    assert told[1].endswith("serving an untrained narrow net instead, whose answers mean nothing")
    assert told[2] == f"{repository} holds random weights"
    assert name_in(repository) == "random"
    assert (repository / build.NET).stat().st_size < 5_000_000


def test_official_weights_that_cannot_be_had_are_an_error_where_they_were_asked_for(repository, monkeypatch, capsys):
    monkeypatch.setenv("WEIGHTS", "official")
    assert prepare.main() == 1
    assert "error: cannot download" in capsys.readouterr().err
    assert not (repository / build.RECORD).exists()


def test_a_download_whose_digest_begins_as_published_is_taken(repository, tmp_path, monkeypatch):
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


def test_a_weights_file_of_ones_own_is_called_by_its_name(repository, tmp_path, monkeypatch):
    np.savez(tmp_path / "mine.npz", **random_state(NARROW, seed=3))
    monkeypatch.setenv("WEIGHTS", str(tmp_path / "mine.npz"))
    assert prepare.main() == 0
    assert name_in(repository) == "mine.npz"


def test_what_is_there_is_not_made_again(repository, monkeypatch, capsys):
    monkeypatch.setenv("WEIGHTS", "random")
    prepare.main()
    made = (repository / build.NET).stat().st_mtime_ns
    prepare.main()
    assert (repository / build.NET).stat().st_mtime_ns == made


def test_the_official_file_is_known_by_what_is_published_of_it():
    assert prepare.OFFICIAL.url.endswith(f"wide_resnet101_2-{prepare.OFFICIAL.sha256}.pth")
