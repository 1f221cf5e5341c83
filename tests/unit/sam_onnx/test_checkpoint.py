import io
import json
import tarfile
import zipfile
from typing import Any

import numpy as np
import pytest

from sam_onnx import CheckpointError
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.decoder import build_decoder
from sam_onnx.encoder import build_encoder


def safetensors(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_safetensors_are_read(tmp_path):
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    header = {
        "__metadata__": {"by": "a test"},
        "a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "BF16", "shape": [1], "data_offsets": [12, 14]},
    }
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors(header, values.tobytes() + b"\x80\x3f"))
    state = load_checkpoint(path)
    np.testing.assert_array_equal(state["a"], values)
    assert state["b"] == np.float32(1.0)


FLOAT8 = safetensors({"a": {"dtype": "F8_E4M3", "shape": [12], "data_offsets": [0, 12]}}, bytes(12))


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("a.safetensors", FLOAT8, "a to hold numbers of a type in", id="f8"),
        pytest.param("a.safetensors", b"", "truncated or damaged", id="empty safetensors"),
        pytest.param(
            "a.safetensors",
            (2**40).to_bytes(8, "little") + b"{}",
            "truncated or damaged",
            id="large header",
        ),
        pytest.param("a.pt", tar(), "tar format of the first PyTorch versions", id="tar"),
        pytest.param("a.pt", b"", "another format", id="empty"),
        pytest.param("a.pt", b"\x89PNG\r\n\x1a\n", "another format", id="png"),
        pytest.param("a.pt", b"version https://git-lfs", "another format", id="lfs"),
        pytest.param("a.pt", None, r"a\.pt.*No such file", id="missing"),
    ],
)
def test_damaged_or_other_file_is_rejected(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path / name)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_npz_files_are_read(tmp_path, save):
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    save(tmp_path / "a.npz", a=values, fortran=np.asfortranarray(values))
    state = load_checkpoint(tmp_path / "a.npz")
    np.testing.assert_array_equal(state["a"], values)
    np.testing.assert_array_equal(state["fortran"], values)


def test_npz_with_objects_is_rejected(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError, match=r"damaged file a\.npz: Object arrays"):
        load_checkpoint(tmp_path / "a.npz")


def test_npz_with_an_entry_that_is_no_array_is_rejected(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", b"no array")
    with pytest.raises(CheckpointError, match=r"damaged file a\.npz: the magic string"):
        load_checkpoint(tmp_path / "a.npz")


PROJECTION = "image_encoder.layers.1.blocks.0.attn.proj.weight"
NORM = "mask_decoder.transformer.layers.0.norm1.weight"
BIAS = "image_encoder.neck.1.bias"


@pytest.mark.parametrize(
    ("build", "key", "value", "message"),
    [
        (build_encoder, PROJECTION, None, f"missing key: expected {PROJECTION}"),
        (
            build_decoder,
            NORM,
            np.ones(63),
            rf"unexpected shape: expected {NORM} \(64\), got \(63\)",
        ),
        (build_encoder, BIAS, np.full(64, np.nan), f"expected {BIAS} to be finite"),
    ],
    ids=["missing", "shape", "not finite"],
)
def test_unusable_tensor_is_named(small_state, build, key, value, message):
    state = {name: tensor for name, tensor in small_state.items() if name != key}
    with pytest.raises(CheckpointError, match=message):
        build(state if value is None else {**state, key: value.astype(np.float32)})
