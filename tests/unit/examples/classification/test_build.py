import json
import shutil

import numpy as np
import onnx
import pytest

from examples.classification import build
from examples.classification.architecture import NARROW, random_state
from mobile_sam_onnx import CheckpointError, ExportError
from tests.unit.examples.classification.modules import REPOSITORY

NAMES = [f"thing {number}" for number in range(1000)]


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    (folder / build.CONFIG).parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / build.CONFIG, folder / build.CONFIG)
    return folder


@pytest.fixture
def weights(tmp_path):
    np.savez(tmp_path / "net.npz", **random_state(NARROW))
    return tmp_path / "net.npz"


@pytest.fixture
def labels(tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    return tmp_path / "names.txt"


def test_weights_file_is_exported_with_labels_and_record(weights, labels, repository, capsys):
    assert build.main(["--weights", str(weights), "--labels", str(labels), "--output", str(repository)]) == 0
    onnx.checker.check_model(onnx.load(repository / build.NET))
    assert (repository / build.LABELS).read_text().splitlines() == NAMES
    assert json.loads((repository / build.RECORD).read_text())["name"] == "net.npz"
    assert capsys.readouterr().err == f"{repository} holds net.npz\n"


def test_classes_are_numbered_without_labels(weights, repository):
    build.from_file(weights, None, repository)
    written = (repository / build.LABELS).read_text().splitlines()
    assert (len(written), written[0], written[-1]) == (1000, "class 0", "class 999")


def test_export_is_repeated_only_after_changes(weights, labels, repository):
    build.from_file(weights, labels, repository)
    exported = (repository / build.NET).stat().st_mtime_ns
    build.from_file(weights, labels, repository)
    assert (repository / build.NET).stat().st_mtime_ns == exported
    labels.write_text("\n".join(reversed(NAMES)))
    build.from_file(weights, labels, repository)
    assert (repository / build.LABELS).read_text().splitlines() == NAMES[::-1]
    np.savez(weights, **random_state(NARROW, seed=1))
    build.from_file(weights, labels, repository)
    assert (repository / build.NET).stat().st_mtime_ns > exported


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["only one"], "expected 1000 labels, one per line, in .*, got 1, 0 of them empty"),
        ([*NAMES[:-1], " "], "got 1000, 1 of them empty"),
    ],
    ids=["too few", "empty label"],
)
def test_wrong_labels_are_rejected(weights, labels, repository, names, message):
    labels.write_text("\n".join(names))
    with pytest.raises(CheckpointError, match=message):
        build.from_file(weights, labels, repository)
    assert not (repository / build.RECORD).exists()


def test_labels_must_be_utf8(weights, labels, repository):
    labels.write_bytes("Käfer\n".encode("latin-1"))
    with pytest.raises(CheckpointError, match="expected labels in UTF-8"):
        build.from_file(weights, labels, repository)


def test_missing_labels_are_reported_with_their_path(weights, tmp_path, repository):
    with pytest.raises(ExportError, match=r"cannot read or write .*/none\.txt: No such file"):
        build.from_file(weights, tmp_path / "none.txt", repository)


def test_number_of_classes_must_match_the_configuration(weights, repository):
    config = repository / build.CONFIG
    config.write_text(config.read_text().replace("dims: [ 1000 ]", "dims: [ 10 ]"))
    with pytest.raises(CheckpointError, match=r"expected 10 classes as in .*config\.pbtxt, got 1000"):
        build.from_file(weights, None, repository)


def test_error_is_printed_in_one_line(repository, tmp_path, capsys):
    assert build.main(["--weights", str(tmp_path / "none.pth"), "--output", str(repository)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: cannot read the weights file ")
    assert printed.count("\n") == 1
