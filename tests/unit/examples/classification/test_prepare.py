import json
import shutil

import numpy as np
import onnx
import pytest

from examples.classification import prepare
from examples.classification.untrained import NARROW, random_state
from sam_onnx import CheckpointError, DownloadError, ExportError
from sam_onnx.download import download
from sam_onnx.repository import sha256_of
from sam_onnx.sources import WebFile

NAMES = [f"thing {number}" for number in range(1000)]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "models"
    (folder / prepare.CONFIG).parent.mkdir(parents=True)
    shutil.copy(prepare.REPOSITORY / prepare.CONFIG, folder / prepare.CONFIG)
    monkeypatch.setattr(prepare, "REPOSITORY", folder)
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("WEIGHTS", "LABELS"):
        monkeypatch.delenv(name, raising=False)
    # A port without a listener.
    monkeypatch.setattr(
        prepare, "OFFICIAL", WebFile("http://127.0.0.1:9/net.npz", 1, prepare.OFFICIAL.sha256)
    )
    return folder


@pytest.fixture
def weights(tmp_path):
    np.savez(tmp_path / "net.npz", **random_state(NARROW))
    return tmp_path / "net.npz"


@pytest.fixture
def labels(tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    return tmp_path / "names.txt"


def name_in(repository):
    return json.loads((repository / prepare.RECORD).read_text())["name"]


def test_weights_are_exported_with_labels_and_again_only_after_changes(
    weights, labels, repository, monkeypatch, capsys
):
    monkeypatch.setenv("WEIGHTS", str(weights))
    monkeypatch.setenv("LABELS", str(labels))
    assert prepare.main() == 0
    onnx.checker.check_model(onnx.load(repository / prepare.NET))
    assert (repository / prepare.LABELS).read_text().splitlines() == NAMES
    assert name_in(repository) == "net.npz"
    assert capsys.readouterr().err == f"{repository} holds net.npz weights\n"
    exported = (repository / prepare.NET).stat().st_mtime_ns
    assert prepare.main() == 0
    assert (repository / prepare.NET).stat().st_mtime_ns == exported
    labels.write_text("\n".join(reversed(NAMES)))
    assert prepare.main() == 0
    assert (repository / prepare.LABELS).read_text().splitlines() == NAMES[::-1]
    np.savez(weights, **random_state(NARROW, seed=1))
    assert prepare.main() == 0
    assert (repository / prepare.NET).stat().st_mtime_ns > exported


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (b"only one", "expected 1000 labels, one per line, in .*, got 1, 0 of them empty"),
        ("\n".join([*NAMES[:-1], " "]).encode(), "got 1000, 1 of them empty"),
        ("Käfer\n".encode("latin-1"), "expected labels in UTF-8"),
    ],
    ids=["too few", "empty label", "not UTF-8"],
)
def test_wrong_labels_are_rejected(weights, labels, repository, names, message):
    labels.write_bytes(names)
    with pytest.raises(CheckpointError, match=message):
        prepare.prepare(str(weights), labels, repository)
    assert not (repository / prepare.RECORD).exists()


def test_number_of_classes_must_match_the_configuration(weights, repository):
    config = repository / prepare.CONFIG
    config.write_text(config.read_text().replace("dims: [ 1000 ]", "dims: [ 10 ]"))
    with pytest.raises(
        CheckpointError, match=r"expected 10 classes as in .*config\.pbtxt, got 1000"
    ):
        prepare.prepare(str(weights), None, repository)


def test_missing_files_are_reported_in_one_line(weights, repository, tmp_path, monkeypatch, capsys):
    with pytest.raises(ExportError, match=r"cannot read or write .*/none\.txt: No such file"):
        prepare.prepare(str(weights), tmp_path / "none.txt", repository)
    monkeypatch.setenv("WEIGHTS", str(tmp_path / "none.pth"))
    assert prepare.main() == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: cannot read or write ")


def test_failed_download_falls_back_to_a_narrow_network_with_a_warning(repository, capsys):
    assert prepare.main() == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("note: no LABELS file: classes are named by number")
    assert lines[1].startswith(
        "warning: cannot download http://127.0.0.1:9/net.npz: cannot connect"
    )
    assert lines[1].endswith(
        "serving an untrained narrow network instead; its answers are meaningless"
    )
    assert lines[2] == f"{repository} holds random weights"
    assert name_in(repository) == "random"
    untrained = [f"class {number} (untrained)" for number in range(1000)]
    assert (repository / prepare.LABELS).read_text().splitlines() == untrained


def test_failed_download_of_requested_official_weights_is_an_error(repository, monkeypatch, capsys):
    monkeypatch.setenv("WEIGHTS", "official")
    assert prepare.main() == 1
    assert "error: cannot download" in capsys.readouterr().err
    assert not (repository / prepare.RECORD).exists()


def test_download_is_checked_against_the_published_digest_prefix(
    weights, repository, tmp_path, monkeypatch
):
    cache = tmp_path / "cache"
    cache.mkdir()
    weights.rename(cache / "net.npz")
    digest, size = sha256_of(cache / "net.npz"), (cache / "net.npz").stat().st_size
    monkeypatch.setattr(
        prepare, "OFFICIAL", WebFile("http://127.0.0.1:9/net.npz", size, digest[:8])
    )
    prepare.prepare("official", None, repository)
    assert name_in(repository) == "official"
    with pytest.raises(DownloadError):
        download(WebFile("http://127.0.0.1:9/net.npz", size, digest[1:9]), cache)
