"""Exports that several commands write to one repository at the same time."""

import copy
import json
import threading
import time
from pathlib import Path

import onnx
import pytest
from onnx import helper

from sam_onnx import pixels
from sam_onnx import repository as module
from sam_onnx.repository import ORCHESTRATORS, Identity, Version, sha256_of

NETWORKS = ("mobile_sam_encoder", "mobile_sam_decoder")


@pytest.fixture(autouse=True)
def _networks_for_gpus(monkeypatch) -> None:
    """Let an empty network be that of a GPU, too."""
    monkeypatch.setattr(pixels, "with_pixels", lambda network, _resize: copy.deepcopy(network))


def export(repository: Path, name: str) -> None:
    """Write two empty networks with the record of these weights."""
    networks = [helper.make_model(helper.make_graph([], part, [], [])) for part in NETWORKS]
    Version(repository).write(networks, Identity(name, name, trained=True, note=""), name)


def names(repository: Path) -> set[str]:
    """Return the names of the weights in all files of a repository."""
    records = [repository / model / "1" / "weights.json" for model in ORCHESTRATORS]
    networks = [onnx.load(repository / model / "1" / "model.onnx") for model in NETWORKS]
    properties = [{each.key: each.value for each in network.metadata_props} for network in networks]
    return {json.loads(record.read_text())["name"] for record in records} | {
        each["weights_name"] for each in properties
    }


def test_exports_at_the_same_time_write_one_after_the_other(tmp_path, monkeypatch):
    running: list[int] = []
    most = 0
    write = module._write_network

    def write_slowly(path, model):
        nonlocal most
        running.append(0)
        most = max(most, len(running))
        time.sleep(0.05)
        running.pop()
        return write(path, model)

    monkeypatch.setattr(module, "_write_network", write_slowly)
    writers = [threading.Thread(target=export, args=[tmp_path, name]) for name in ("a", "b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert most == 1
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("file", ["model.onnx", "weights.json"])
def test_a_file_is_replaced_and_not_written_in_place(tmp_path, file):
    export(tmp_path, "a")
    model = NETWORKS[0] if file == "model.onnx" else ORCHESTRATORS[0]
    path = tmp_path / model / "1" / file
    (tmp_path / "link").hardlink_to(path)
    before = path.read_bytes()
    export(tmp_path, "b")
    assert (tmp_path / "link").read_bytes() == before != path.read_bytes()


def test_record_has_the_hash_of_each_network(tmp_path):
    export(tmp_path, "a")
    for model in ORCHESTRATORS:
        record = json.loads((tmp_path / model / "1" / "weights.json").read_text())
        assert record["networks"] == {
            f"{network}/{file}": sha256_of(tmp_path / network / "1" / file)
            for network in NETWORKS
            for file in ("model.onnx", "gpu.onnx")
        }


@pytest.mark.parametrize("model", NETWORKS)
def test_export_without_a_network_for_gpus_is_not_complete(tmp_path, model):
    export(tmp_path, "a")
    assert Version(tmp_path).identity("a") is not None
    (tmp_path / model / "1" / "gpu.onnx").unlink()
    assert Version(tmp_path).identity("a") is None


def test_record_without_hashes_is_no_complete_export(tmp_path):
    export(tmp_path, "a")
    assert Version(tmp_path).identity("a") is not None
    path = tmp_path / ORCHESTRATORS[-1] / "1" / "weights.json"
    record = json.loads(path.read_text())
    del record["networks"]
    path.write_text(json.dumps(record))
    assert Version(tmp_path).identity("a") is None
