import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mobile_sam_onnx import CheckpointError
from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.model import build_decoder, build_encoder

Arrays = dict[str, npt.NDArray[Any]]


def safetensors(path: Path, header: Any, data: bytes) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_safetensors_are_read(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    header = {
        "__metadata__": {"by": "a test"},
        "a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "BF16", "shape": [1], "data_offsets": [12, 14]},
    }
    state = load_checkpoint(safetensors(tmp_path / "a.safetensors", header, values.tobytes() + b"\x80\x3f"))
    np.testing.assert_array_equal(state["a"], values)
    assert state["b"] == np.float32(1.0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 12]}, "truncated or damaged file a.safetensors: "),
        ({"dtype": "F16", "shape": [2, 3], "data_offsets": [4, 16]}, "truncated or damaged file a.safetensors: "),
        ({"dtype": "F8_E4M3", "shape": [12], "data_offsets": [0, 12]}, "expected a to hold numbers of a type in NumPy"),
    ],
    ids=["wrong type", "outside the file", "unknown type"],
)
def test_inconsistent_safetensors_are_rejected(tmp_path: Path, entry: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(safetensors(tmp_path / "a.safetensors", {"a": entry}, bytes(12)))


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 64, (4).to_bytes(8, "little") + b"nope", (2**40).to_bytes(8, "little") + b"{}"],
    ids=["empty", "noise", "no json", "large header"],
)
def test_damaged_safetensors_are_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        load_checkpoint(tmp_path / "a.safetensors")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_npz_files_are_read(tmp_path: Path, save: Any) -> None:
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    save(tmp_path / "a.npz", a=values, fortran=np.asfortranarray(values))
    state = load_checkpoint(tmp_path / "a.npz")
    np.testing.assert_array_equal(state["a"], values)
    np.testing.assert_array_equal(state["fortran"], values)


def test_npz_with_objects_is_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError, match="expected a to hold"):
        load_checkpoint(tmp_path / "a.npz")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no\.pt.*No such file"):
        load_checkpoint(tmp_path / "no.pt")


def test_legacy_tar_file_is_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.pt", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(CheckpointError, match="tar format of the first PyTorch versions"):
        load_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n", b"version https://git-lfs"], ids=["empty", "png", "lfs"]
)
def test_other_files_are_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match="another format"):
        load_checkpoint(tmp_path / "a.pt")


def test_missing_key_is_named(small_state: Arrays) -> None:
    key = "image_encoder.layers.1.blocks.0.attn.proj.weight"
    state = {name: value for name, value in small_state.items() if name != key}
    with pytest.raises(CheckpointError, match=f"missing key: expected {key}"):
        build_encoder(state)


def test_unexpected_shape_is_named(small_state: Arrays) -> None:
    key = "mask_decoder.transformer.layers.0.norm1.weight"
    with pytest.raises(CheckpointError, match=rf"unexpected shape: expected {key} \(64\), got \(63\)"):
        build_decoder({**small_state, key: np.ones(63, np.float32)})


def test_values_that_are_not_finite_are_rejected(small_state: Arrays) -> None:
    key = "image_encoder.neck.1.bias"
    with pytest.raises(CheckpointError, match=f"expected {key} to be finite"):
        build_encoder({**small_state, key: np.full(64, np.nan, np.float32)})


def test_state_dict_of_another_model_is_rejected() -> None:
    with pytest.raises(CheckpointError, match="missing key"):
        build_encoder({"fc.weight": np.ones((2, 2), np.float32)})
