"""PyTorch's checkpoints, zip and legacy: read exactly, and nothing in them can run code or take much memory."""

import io
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from mobile_sam_onnx import CheckpointError
from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.torch_files import LENGTH, MAGIC, VERSION
from mobile_sam_onnx.torch_pickle import OPCODES, unpickle

LITTLE = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class Global:
    """Object pickled as a reference to a module's name; the module need not be installed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """Object pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class Storage:
    """Object pickled as a persistent id, which in legacy files ends with the storage that it is a view of, or None."""

    def __init__(self, kind: str, key: str, length: int, *view: Any) -> None:
        self.pid = ("storage", Global("torch", kind), key, "cpu", length, *view)


class Pickler(pickle._Pickler):
    """Pure-Python pickler that writes globals and storages as torch does."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    write: Any
    save: Any

    def persistent_id(self, obj: Any) -> Any:
        return obj.pid if isinstance(obj, Storage) else None

    def save_global_name(self, obj: Global) -> None:
        self.write(b"c" + f"{obj.module}\n{obj.name}\n".encode())

    def save_call(self, obj: Call) -> None:
        self.save(obj.function)
        self.save(obj.arguments)
        self.write(b"R")

    dispatch[Global] = save_global_name
    dispatch[Call] = save_call


def tensor(key: str, shape: tuple[int, ...], kind: str = "FloatStorage", view: tuple[Any, ...] = (), **changes: Any):
    """Return a tensor with contiguous strides; `changes` replace `length`, `offset`, `size` or `stride`."""
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    values = {"length": int(np.prod(shape)), "offset": 0, "size": shape, "stride": strides, **changes}
    storage = Storage(kind, key, values["length"], *view)
    hooks = Call(Global("collections", "OrderedDict"))
    rebuild = Global("torch._utils", "_rebuild_tensor_v2")
    return Call(rebuild, storage, values["offset"], values["size"], values["stride"], False, hooks)


def write_zip(
    path: Path, content: Any, storages: dict[str, npt.NDArray[Any]], byteorder: str | None = "little", **options: Any
) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        with archive.open("archive/data.pkl", "w") as file:
            Pickler(file, 2).dump(content)
        if byteorder:
            archive.writestr("archive/byteorder", byteorder)
        for key, values in storages.items():
            archive.writestr(f"archive/data/{key}", values.tobytes())
    return path


def write_legacy(
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


VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=[write_zip, write_legacy], ids=["zip", "legacy"])
def write(request):
    """Writer of either format."""
    return request.param


def test_tensors_are_read_with_type_and_shape(tmp_path, write):
    content = {
        "a": tensor("0", (3, 4)),
        "half": tensor("10", (12,), "HalfStorage"),
        "count": tensor("2", (), "LongStorage"),
        "bfloat16": tensor("3", (3, 4), "BFloat16Storage"),
        "transposed": tensor("0", (4, 3), length=12, stride=(1, 4)),
        "column": tensor("0", (3,), length=12, offset=1, stride=(4,)),
        "parameter": Call(Global("torch._utils", "_rebuild_parameter"), tensor("0", (3, 4)), True, {}),
    }
    storages: dict[str, Any] = {
        "10": VALUES.astype(np.float16).ravel(),
        "0": VALUES,
        "2": np.array([7]),
        "3": (VALUES.view(np.uint32) >> 16).astype("<u2"),
    }
    state = load_checkpoint(write(tmp_path / "a.pt", content, storages))
    expected: dict[str, Any] = {
        "a": VALUES,
        "half": VALUES.astype(np.float16).ravel(),
        "count": np.array(7),
        "bfloat16": VALUES,
        "transposed": VALUES.T,
        "column": VALUES[:, 1],
        "parameter": VALUES,
    }
    for key, values in expected.items():
        np.testing.assert_array_equal(state[key], values, strict=True)


def test_file_written_by_pytorch_is_read():
    state = load_checkpoint(Path(__file__).with_name("torch_legacy.pth"))
    assert {key: (value.dtype.name, value.shape) for key, value in state.items()} == {
        "conv.weight": ("float16", (2, 3, 1, 1)),
        "bn.running_mean": ("float32", (2,)),
        "bn.num_batches_tracked": ("int64", ()),
    }
    np.testing.assert_array_equal(state["conv.weight"].ravel(), np.arange(6) / 4)
    np.testing.assert_array_equal(state["bn.running_mean"], [-1.5, 2])
    assert state["bn.num_batches_tracked"] == 9


@pytest.mark.parametrize("byteorder", ["little", "big", None])
def test_both_byte_orders_of_zip_files_are_read(tmp_path, byteorder):
    values = VALUES.astype(">f4" if byteorder == "big" else "<f4")
    state = load_checkpoint(write_zip(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {"0": values}, byteorder))
    np.testing.assert_array_equal(state["a"], VALUES)


@pytest.mark.parametrize("wrapper", ["model", "state_dict"])
def test_wrapped_and_prefixed_state_dicts_are_read(tmp_path, write, wrapper):
    content = {wrapper: {"module.a": tensor("0", (3, 4))}, "epoch": 3}
    assert list(load_checkpoint(write(tmp_path / "a.pt", content, {"0": VALUES}))) == ["a"]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("__builtin__", "exec"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("torch", "load"),
        ("torch._utils", "_rebuild_tensor_v2.__globals__"),
    ],
    ids=str,
)
def test_other_references_are_rejected_by_name(tmp_path, write, module, name):
    path = write(tmp_path / "a.pt", {"a": Call(Global(module, name), "touch /tmp/never")}, {})
    with pytest.raises(CheckpointError, match=f"refused.*{module}.{name}"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": (3, 5)},
        {"offset": 1},
        {"offset": -1},
        {"size": (2**30, 2**30), "stride": (0, 0)},
        {"stride": (4, -1)},
        {"stride": (4,)},
        {"size": ("3", 4)},
        {"size": (2**70, 1)},
        {"length": 2**35},
        {"length": 13},
    ],
    ids=str,
)
def test_tensor_outside_its_storage_is_rejected(tmp_path, write, changes):
    path = write(tmp_path / "a.pt", {"a": tensor("0", (3, 4), **changes)}, {"0": VALUES})
    with pytest.raises(CheckpointError, match="expected"):
        load_checkpoint(path)


def test_missing_storage_is_rejected(tmp_path, write):
    with pytest.raises(CheckpointError, match="expected storage 0 in the file"):
        load_checkpoint(write(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {}))


def test_compressed_storages_are_rejected(tmp_path):
    zeros = {"0": np.zeros(2**24, np.float32)}
    path = write_zip(tmp_path / "a.pt", {"a": tensor("0", (2**24,))}, zeros, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="uncompressed"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    [[1, 2], {}, {"a": 1}, {"a": "text"}, {1: tensor("0", (3, 4))}, {"model": {"a": {"b": 1}}}],
    ids=["list", "empty", "number", "text", "numeric key", "nested dict"],
)
def test_content_other_than_a_dict_of_tensors_is_rejected(tmp_path, write, content):
    with pytest.raises(CheckpointError, match="expected a dict of tensors"):
        load_checkpoint(write(tmp_path / "a.pt", content, {"0": VALUES}))


@pytest.mark.parametrize("keep", [4, 40, 200, -47, -8, -1], ids=str)
def test_truncated_file_is_rejected(tmp_path, write, keep):
    path = write(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {"0": VALUES})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"truncated or damaged|damaged one"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"magic": 7}, "a pickle of something else", id="magic"),
        pytest.param({"system": {"little_endian": False}}, "expected little-endian values", id="big-endian"),
        pytest.param({"system": None}, "expected little-endian values", id="no system"),
        pytest.param({"keys": ["1"]}, "expected the keys of the tensors' storages", id="unknown key"),
        pytest.param({"keys": [["0"]]}, "expected the keys of the tensors' storages", id="list as key"),
        pytest.param({"keys": "0"}, "expected the keys of the tensors' storages", id="text instead of a list"),
    ],
)
def test_other_legacy_pickles_are_rejected(tmp_path, changes, message):
    path = write_legacy(tmp_path / "a.pth", {"a": tensor("0", (3, 4))}, {"0": VALUES}, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path)


def test_legacy_storage_of_another_length_is_rejected(tmp_path):
    path = write_legacy(tmp_path / "a.pth", {"a": tensor("0", (3, 4))}, {"0": VALUES})
    path.write_bytes(path.read_bytes().replace(LENGTH.type(12).tobytes(), LENGTH.type(11).tobytes()))
    with pytest.raises(CheckpointError, match="expected 12 values"):
        load_checkpoint(path)
    content = {"a": tensor("0", (3, 4)), "b": tensor("0", (2, 4))}
    with pytest.raises(CheckpointError, match="got none of its kind and length"):
        load_checkpoint(write_legacy(path, content, {"0": VALUES[:2]}))


def test_view_of_a_legacy_storage_is_rejected(tmp_path):
    path = write_legacy(tmp_path / "a.pth", {"a": tensor("0", (3, 4), view=(("1", 0, 12),))}, {"0": VALUES})
    with pytest.raises(CheckpointError, match="expected a storage as persistent id"):
        load_checkpoint(path)


def pickle_file(path: Path, pickled: bytes, entry: str | None) -> Path:
    path.write_bytes(pickled)
    if entry:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(entry, pickled)
    return path


@pytest.mark.parametrize(
    ("pickled", "entry", "message"),
    [
        (b"\x80\x02}q\x00(X\xff\xff\x00\x00abc", "archive/data.pkl", "damaged"),
        (pickle.dumps({"a": io.DEFAULT_BUFFER_SIZE}, 2), None, "a pickle of something else"),
        (b"hello", "readme.txt", "not a PyTorch checkpoint"),
    ],
    ids=["damaged", "other pickle", "other zip"],
)
def test_other_or_damaged_file_is_a_one_line_error(tmp_path, pickled, entry, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(pickle_file(tmp_path / "a.pt", pickled, entry))
    assert "\n" not in str(caught.value)


MEMO, COUNT = struct.pack("<I", 2**24), struct.pack("<Q", 2**26)


@pytest.mark.parametrize(
    "pickled",
    [b"}r" + MEMO + b".", b"}p16777216\n.", b"\x96" + COUNT + b".", b"\x8e" + COUNT + b".", b"\x8d" + COUNT + b"."],
    ids=["long_binput", "put", "bytearray8", "binbytes8", "binunicode8"],
)
@pytest.mark.parametrize("entry", ["archive/data.pkl", None], ids=["zip", "legacy"])
def test_small_pickle_with_large_sizes_needs_little_memory(tmp_path, pickled, entry):
    path = pickle_file(tmp_path / "a.pt", b"\x80\x02" + pickled, entry)
    assert path.stat().st_size < 200
    message, peak = rejection(path)
    assert message.startswith(("expected ", "refused: expected "))
    assert message.isprintable()
    assert peak < 8 * 2**20  # the legacy reader reads up to 4 MiB at once


def nested(depth: int) -> bytes:
    """Return opcodes for a tuple of two tuples of two..., with 2^depth leaves."""
    return b")" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(depth))


CALL = b"ctorch\nSize\n"
COSTLY = {
    "tuple as key": (b"}" + nested(16) + b"K\x00s.", "as keys, got tuple"),
    "tuples as keys": (b"}(" + nested(16) + b"K\x00u.", "as keys, got tuple"),
    "numbers of one hash": (b"}\x8a\x08" + (2**61 - 1).to_bytes(8, "little") + b"K\x00s.", "as keys, got int"),
    "tuple in a set": (b"\x8f(" + nested(16) + b"\x90.", "an opcode that torch.save writes, got 143"),
    "many arguments": (CALL + b"(" + b"N" * 9 + b"tR.", "at most 8 arguments"),
    "list as arguments": (CALL + b"]R.", "at most 8 arguments"),
    "pairs of an ordered dict": (b"ccollections\nOrderedDict\n](K\x00K\x01\x86e\x85R.", "TypeError"),
    "long storage": (b"(" + b"N" * 9 + b"tQ.", "a storage as persistent id"),
}


@pytest.mark.parametrize(("pickled", "message"), COSTLY.values(), ids=COSTLY)
@pytest.mark.parametrize("entry", ["archive/data.pkl", None], ids=["zip", "legacy"])
def test_opcodes_whose_work_is_not_bounded_by_their_bytes_are_refused(tmp_path, pickled, message, entry):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(pickle_file(tmp_path / "a.pt", b"\x80\x02" + pickled, entry))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deeply_nested_key_is_refused_by_its_hundred_bytes(tmp_path):
    pickled = b"\x80\x02}" + nested(17) + b"K\x00s."
    assert len(pickled) < 100
    path = pickle_file(tmp_path / "a.pt", pickled, "archive/data.pkl")
    assert rejection(path)[0] == "refused: expected texts and small numbers as keys, got tuple"


def test_sizes_and_attributes_are_not_copied():
    sizes = b"(K\x07K\x08tq\x00" + CALL + b"h\x00\x85R\x86"
    state = b"}}X\x01\x00\x00\x00aK\x01sb"
    content: Any = unpickle(io.BytesIO(b"\x80\x02" + sizes + state + b"\x86."))
    assert content[0][0] is content[0][1]
    assert content[1] == {}


@pytest.mark.parametrize("opcode", [code for code in pickle._Unpickler.dispatch if code not in OPCODES], ids=chr)
def test_opcodes_that_torch_does_not_write_are_refused(opcode):
    with pytest.raises(CheckpointError, match=f"an opcode that torch.save writes, got {opcode}$"):
        unpickle(io.BytesIO(b"\x80\x02" + bytes([opcode])))


def test_sizes_of_too_many_dimensions_are_refused(tmp_path, write):
    content = {"a": tensor("0", (12,), size=(1,) * 9, stride=(1,) * 9)}
    with pytest.raises(CheckpointError, match="expected at most 8 whole numbers as sizes"):
        load_checkpoint(write(tmp_path / "a.pt", content, {"0": VALUES}))


def test_large_byteorder_entry_is_not_read_completely(tmp_path):
    large = "x" * 2**26
    content = {"a": tensor("0", (3, 4))}
    path = write_zip(tmp_path / "a.pt", content, {"0": VALUES}, large, compression=zipfile.ZIP_DEFLATED)
    message, peak = rejection(path)
    assert message == "expected byteorder little or big, got b'xxxxxxxxxxxxxxxx'"
    assert peak < 2**20


def rejection(path: Path) -> tuple[str, int]:
    """Return the error of reading a file, and the most memory that it took."""
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(path)
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
