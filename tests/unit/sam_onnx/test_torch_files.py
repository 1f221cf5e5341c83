"""PyTorch's checkpoints, zip and legacy: read exactly, and nothing in them can run code or take
much memory.
"""

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

from sam_onnx import CheckpointError
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.torch_files import LENGTH, MAGIC, VERSION
from sam_onnx.torch_pickle import OPCODES, unpickle

LITTLE = {
    "protocol_version": VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}


class Global:
    """Object pickled as a reference to a module's name; the module need not be installed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """Object pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class Storage:
    """Object pickled as a persistent id, which in legacy files ends with the storage that it is
    a view of, or None.
    """

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


def tensor(
    key: str,
    shape: tuple[int, ...],
    kind: str = "FloatStorage",
    view: tuple[Any, ...] = (),
    **changes: Any,
):
    """Return a tensor with contiguous strides; `changes` replace `length`, `offset`, `size` or
    `stride`.
    """
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    values = {
        "length": int(np.prod(shape)),
        "offset": 0,
        "size": shape,
        "stride": strides,
        **changes,
    }
    storage = Storage(kind, key, values["length"], *view)
    hooks = Call(Global("collections", "OrderedDict"))
    rebuild = Global("torch._utils", "_rebuild_tensor_v2")
    return Call(rebuild, storage, values["offset"], values["size"], values["stride"], False, hooks)


def write_zip(
    path: Path,
    content: Any,
    storages: dict[str, npt.NDArray[Any]],
    byteorder: str | None = "little",
    **options: Any,
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
        "parameter": Call(
            Global("torch._utils", "_rebuild_parameter"), tensor("0", (3, 4)), True, {}
        ),
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
    state = load_checkpoint(
        write_zip(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {"0": values}, byteorder)
    )
    np.testing.assert_array_equal(state["a"], VALUES)


@pytest.mark.parametrize("wrapper", ["model", "state_dict"])
def test_wrapped_and_prefixed_state_dicts_are_read(tmp_path, write, wrapper):
    content = {wrapper: {"module.a": tensor("0", (3, 4))}, "epoch": 3}
    assert list(load_checkpoint(write(tmp_path / "a.pt", content, {"0": VALUES}))) == ["a"]


@pytest.mark.parametrize(
    "name",
    ["os system", "builtins eval", "torch load", "torch._utils _rebuild_tensor_v2.__globals__"],
)
def test_other_references_are_rejected_by_name(tmp_path, write, name):
    path = write(tmp_path / "a.pt", {"a": Call(Global(*name.split()), "touch /tmp/never")}, {})
    with pytest.raises(CheckpointError, match=f"refused.*{name.replace(' ', '.')}"):
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
        {"key": "1"},
        {"size": (1,) * 9, "stride": (1,) * 9},
    ],
    ids=str,
)
def test_tensor_outside_its_storage_is_rejected(tmp_path, write, changes):
    described = tensor(**{"key": "0", "shape": (3, 4), **changes})
    with pytest.raises(CheckpointError, match="expected"):
        load_checkpoint(write(tmp_path / "a.pt", {"a": described}, {"0": VALUES}))


def test_compressed_storages_are_rejected(tmp_path):
    zeros = {"0": np.zeros(2**24, np.float32)}
    path = write_zip(
        tmp_path / "a.pt", {"a": tensor("0", (2**24,))}, zeros, compression=zipfile.ZIP_DEFLATED
    )
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


VIEW = {"a": tensor("0", (3, 4), view=(("1", 0, 12),))}
TWO_LENGTHS = {"a": tensor("0", (3, 4)), "b": tensor("0", (2, 4))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"magic": 7}, "a pickle of something else", id="magic"),
        pytest.param(
            {"system": {"little_endian": False}}, "expected little-endian values", id="big-endian"
        ),
        pytest.param(
            {"keys": ["1"]}, "expected the keys of the tensors' storages", id="unknown key"
        ),
        pytest.param(
            {"storages": {"0": np.zeros(13, "f4")}}, "expected 12 values", id="longer storage"
        ),
        pytest.param(
            {"content": TWO_LENGTHS, "storages": {"0": VALUES[:2]}},
            "none of its kind and length",
            id="two",
        ),
        pytest.param({"content": VIEW}, "expected a storage as persistent id", id="view"),
    ],
)
def test_other_legacy_pickles_are_rejected(tmp_path, changes, message):
    file: dict[str, Any] = {
        "content": {"a": tensor("0", (3, 4))},
        "storages": {"0": VALUES},
        **changes,
    }
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(write_legacy(tmp_path / "a.pth", **file))


def pickle_file(path: Path, pickled: bytes, entry: str | None) -> Path:
    path.write_bytes(pickled)
    if entry:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(entry, pickled)
    return path


def test_other_zip_is_a_one_line_error(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"^expected one data\.pkl in a\.pt, got 0: not a PyTorch checkpoint$"
    ):
        load_checkpoint(pickle_file(tmp_path / "a.pt", b"hello", "readme.txt"))


def nested(depth: int) -> bytes:
    """Return opcodes for a tuple of two tuples of two..., with 2^depth leaves."""
    return b")" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(depth))


CALL = b"ctorch\nSize\n"
MEMO = struct.pack("<I", 2**24)
COSTLY = {
    "large memo": (b"}r" + MEMO + b".", ""),
    "tuple as key": (b"}" + nested(17) + b"K\x00s.", "as keys, got tuple"),
    "tuples as keys": (b"}(" + nested(16) + b"K\x00u.", "as keys, got tuple"),
    "numbers of one hash": (
        b"}\x8a\x08" + (2**61 - 1).to_bytes(8, "little") + b"K\x00s.",
        "as keys, got int",
    ),
    "many arguments": (CALL + b"(" + b"N" * 9 + b"tR.", "at most 8 arguments"),
    "list as arguments": (CALL + b"]R.", "at most 8 arguments"),
    "pairs of an ordered dict": (
        b"ccollections\nOrderedDict\n](K\x00K\x01\x86e\x85R.",
        "TypeError",
    ),
    "long storage": (b"(" + b"N" * 9 + b"tQ.", "a storage as persistent id"),
}


@pytest.mark.parametrize(("pickled", "message"), COSTLY.values(), ids=COSTLY)
@pytest.mark.parametrize("entry", ["archive/data.pkl", None], ids=["zip", "legacy"])
def test_small_pickle_that_asks_for_much_work_or_memory_is_refused(
    tmp_path, pickled, message, entry
):
    path = pickle_file(tmp_path / "a.pt", b"\x80\x02" + pickled, entry)
    assert path.stat().st_size < 250
    found, peak = rejection(path)
    assert found.startswith(("expected ", "refused: expected "))
    assert message in found
    assert found.isprintable()
    assert peak < 8 * 2**20  # the legacy reader reads up to 4 MiB at once


def test_sizes_and_attributes_are_not_copied():
    sizes = b"(K\x07K\x08tq\x00" + CALL + b"h\x00\x85R\x86"
    state = b"}}X\x01\x00\x00\x00aK\x01sb"
    content: Any = unpickle(io.BytesIO(b"\x80\x02" + sizes + state + b"\x86."))
    assert content[0][0] is content[0][1]
    assert content[1] == {}


@pytest.mark.parametrize(
    "opcode", [code for code in pickle._Unpickler.dispatch if code not in OPCODES], ids=chr
)
def test_opcodes_that_torch_does_not_write_are_refused(opcode):
    with pytest.raises(CheckpointError, match=f"an opcode that torch.save writes, got {opcode}$"):
        unpickle(io.BytesIO(b"\x80\x02" + bytes([opcode])))


def test_large_byteorder_entry_is_not_read_completely(tmp_path):
    options: Any = {"byteorder": "x" * 2**26, "compression": zipfile.ZIP_DEFLATED}
    message, peak = rejection(
        write_zip(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {"0": VALUES}, **options)
    )
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
