import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mobile_sam_onnx import CheckpointError, load_checkpoint
from mobile_sam_onnx.torch_legacy import LENGTH, MAGIC, VERSION
from tests.unit.mobile_sam_onnx.test_torch_zip import Global, Pickler, Storage, tensor

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)
LITTLE = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class LegacyStorage(Storage):
    """Storage whose persistent id ends with the storage that it is a view of, or None."""

    pid: tuple[Any, ...]

    def __init__(self, kind: str, key: str, length: int, view: Any = None) -> None:
        super().__init__(kind, key, length)
        self.pid = (*self.pid, view)


def legacy(key: str, shape: tuple[int, ...], kind: str = "FloatStorage", view: Any = None, **changes: Any) -> Any:
    made = tensor(key, shape, kind, **changes)
    first, *others = made.arguments
    made.arguments = (LegacyStorage(kind, key, first.pid[4], view), *others)
    return made


def write(
    path: Path,
    content: Any,
    storages: dict[str, npt.NDArray[Any]],
    *,
    system: Any = LITTLE,
    keys: Any = None,
    magic: int = MAGIC,
) -> Path:
    with path.open("wb") as file:
        for value in (magic, VERSION, system, content, list(storages) if keys is None else keys):
            Pickler(file, 2).dump(value)
        for values in storages.values():
            file.write(LENGTH.type(values.size).tobytes() + values.tobytes())
    return path


def written(tmp_path: Path, **changes: Any) -> Path:
    return write(tmp_path / "a.pth", {"a": legacy("0", (3, 4))}, {"0": VALUES}, **changes)


def test_tensors_are_read_with_type_and_shape(tmp_path: Path) -> None:
    content = {
        "a": legacy("0", (3, 4)),
        "half": legacy("10", (12,), "HalfStorage"),
        "count": legacy("2", (), "LongStorage"),
        "column": legacy("0", (3,), length=12, offset=1, stride=(4,)),
    }
    storages: dict[str, npt.NDArray[Any]] = {"10": VALUES.astype(np.float16).ravel(), "0": VALUES, "2": np.array([7])}
    state = load_checkpoint(write(tmp_path / "a.pth", content, storages))
    np.testing.assert_array_equal(state["a"], VALUES)
    assert state["half"].dtype == np.float16
    np.testing.assert_array_equal(state["half"], VALUES.ravel())
    assert state["count"].shape == ()
    assert state["count"] == 7
    np.testing.assert_array_equal(state["column"], VALUES[:, 1])


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    bits = (VALUES.view(np.uint32) >> 16).astype(np.uint16)
    state = load_checkpoint(write(tmp_path / "a.pth", {"a": legacy("0", (3, 4), "BFloat16Storage")}, {"0": bits}))
    assert state["a"].dtype == np.float32
    np.testing.assert_array_equal(state["a"], VALUES)


def test_file_written_by_pytorch_is_read() -> None:
    state = load_checkpoint(Path(__file__).with_name("torch_legacy.pth"))
    assert {key: (value.dtype.name, value.shape) for key, value in state.items()} == {
        "conv.weight": ("float16", (2, 3, 1, 1)),
        "bn.running_mean": ("float32", (2,)),
        "bn.num_batches_tracked": ("int64", ()),
    }
    np.testing.assert_array_equal(state["conv.weight"].ravel(), np.arange(6) / 4)
    np.testing.assert_array_equal(state["bn.running_mean"], [-1.5, 2])
    assert state["bn.num_batches_tracked"] == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": 7}, "a pickle of something else"),
        ({"system": {"little_endian": False}}, "expected little-endian values"),
        ({"system": None}, "expected little-endian values"),
        ({"keys": []}, "expected storage 0 in the file, got none"),
        ({"keys": ["1"]}, "expected the keys of the tensors' storages"),
        ({"keys": [["0"]]}, "expected the keys of the tensors' storages"),
        ({"keys": "0"}, "expected the keys of the tensors' storages"),
    ],
    ids=["magic", "big-endian", "no system", "no keys", "unknown key", "list as key", "text instead of a list"],
)
def test_other_pickles_are_rejected(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(written(tmp_path, **changes))


@pytest.mark.parametrize("keep", [1, 30, 200, -47, -8, -1], ids=str)
def test_truncated_file_is_rejected(tmp_path: Path, keep: int) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"truncated or damaged|damaged one"):
        load_checkpoint(path)


def test_storage_of_another_length_is_rejected(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content.replace(LENGTH.type(12).tobytes(), LENGTH.type(11).tobytes()))
    with pytest.raises(CheckpointError, match="expected 12 values"):
        load_checkpoint(path)


def test_storage_with_two_lengths_is_rejected(tmp_path: Path) -> None:
    content = {"a": legacy("0", (3, 4)), "b": legacy("0", (2, 4))}
    with pytest.raises(CheckpointError, match="got none of its kind and length"):
        load_checkpoint(write(tmp_path / "a.pth", content, {"0": VALUES[:2]}))


def test_view_of_a_storage_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pth", {"a": legacy("0", (3, 4), view=("1", 0, 12))}, {"0": VALUES})
    with pytest.raises(CheckpointError, match="expected a storage as persistent id"):
        load_checkpoint(path)


def test_other_references_are_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"got a reference to os\.system"):
        load_checkpoint(write(tmp_path / "a.pth", {"a": Global("os", "system")}, {}))


def test_other_pickle_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(pickle.dumps({"a": io.DEFAULT_BUFFER_SIZE}, 2))
    with pytest.raises(CheckpointError, match="a pickle of something else") as raised:
        load_checkpoint(tmp_path / "a.pth")
    assert "\n" not in str(raised.value)
