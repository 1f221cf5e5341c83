import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from mobile_sam_onnx import CheckpointError, load_checkpoint


class Global:
    """Object pickled as a reference to a module's name; the module need not be installed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """Object pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class Storage:
    """Object pickled as a persistent id."""

    def __init__(self, kind: str, key: str, length: int) -> None:
        self.pid = ("storage", Global("torch", kind), key, "cpu", length)


class Pickler(pickle._Pickler):
    """Pure-Python pickler that writes globals and storages as torch does."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    write: Callable[[bytes], None]
    save: Callable[[Any], None]

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


def tensor(key: str, shape: tuple[int, ...], kind: str = "FloatStorage", **changes: Any) -> Call:
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    values = {"length": int(np.prod(shape)), "offset": 0, "size": shape, "stride": strides, **changes}
    hooks = Call(Global("collections", "OrderedDict"))
    return Call(
        Global("torch._utils", "_rebuild_tensor_v2"),
        Storage(kind, key, values["length"]),
        values["offset"],
        values["size"],
        values["stride"],
        False,
        hooks,
    )


def write(
    path: Path, content: Any, storages: dict[str, bytes], byteorder: str | None = "little", **options: Any
) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        with archive.open("archive/data.pkl", "w") as file:
            Pickler(file, 2).dump(content)
        if byteorder:
            archive.writestr("archive/byteorder", byteorder)
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
    return path


VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_tensors_are_read_with_type_and_shape(tmp_path: Path) -> None:
    content = {
        "a": tensor("0", (3, 4)),
        "half": tensor("1", (12,), "HalfStorage"),
        "count": tensor("2", (), "LongStorage"),
    }
    storages = {
        "0": VALUES.tobytes(),
        "1": VALUES.astype(np.float16).tobytes(),
        "2": np.int64(7).tobytes(),
    }
    state = load_checkpoint(write(tmp_path / "a.pt", content, storages))
    np.testing.assert_array_equal(state["a"], VALUES)
    assert state["half"].dtype == np.float16
    assert state["count"].shape == ()
    assert state["count"] == 7


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    raw = (VALUES.view(np.uint32) >> 16).astype("<u2").tobytes()
    state = load_checkpoint(write(tmp_path / "a.pt", {"a": tensor("0", (3, 4), "BFloat16Storage")}, {"0": raw}))
    assert state["a"].dtype == np.float32
    np.testing.assert_array_equal(state["a"], VALUES)


@pytest.mark.parametrize("byteorder", ["little", "big", None])
def test_both_byte_orders_are_read(tmp_path: Path, byteorder: str | None) -> None:
    raw = VALUES.astype(">f4" if byteorder == "big" else "<f4").tobytes()
    state = load_checkpoint(write(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {"0": raw}, byteorder))
    np.testing.assert_array_equal(state["a"], VALUES)


def test_strides_and_offsets_are_followed(tmp_path: Path) -> None:
    content = {
        "transposed": tensor("0", (4, 3), length=12, stride=(1, 4)),
        "second_row": tensor("0", (4,), length=12, offset=4),
    }
    state = load_checkpoint(write(tmp_path / "a.pt", content, {"0": VALUES.tobytes()}))
    np.testing.assert_array_equal(state["transposed"], VALUES.T)
    np.testing.assert_array_equal(state["second_row"], VALUES[1])


@pytest.mark.parametrize("wrapper", ["model", "state_dict"])
def test_wrapped_and_prefixed_state_dicts_are_read(tmp_path: Path, wrapper: str) -> None:
    content = {wrapper: {"module.a": tensor("0", (3, 4))}, "epoch": 3}
    assert list(load_checkpoint(write(tmp_path / "a.pt", content, {"0": VALUES.tobytes()}))) == ["a"]


def test_parameters_are_read_as_tensors(tmp_path: Path) -> None:
    parameter = Call(Global("torch._utils", "_rebuild_parameter"), tensor("0", (3, 4)), True, {})
    state = load_checkpoint(write(tmp_path / "a.pt", {"a": parameter}, {"0": VALUES.tobytes()}))
    np.testing.assert_array_equal(state["a"], VALUES)


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
def test_other_references_are_rejected_by_name(tmp_path: Path, module: str, name: str) -> None:
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
def test_tensor_outside_its_storage_is_rejected(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write(tmp_path / "a.pt", {"a": tensor("0", (3, 4), **changes)}, {"0": VALUES.tobytes()})
    with pytest.raises(CheckpointError, match="expected"):
        load_checkpoint(path)


def test_missing_storage_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected storage 0 in the file"):
        load_checkpoint(write(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {}))


def test_compressed_storages_are_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pt", {"a": tensor("0", (2**24,))}, {"0": bytes(2**26)}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="uncompressed"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    [[1, 2], {}, {"a": 1}, {"a": "text"}, {1: tensor("0", (3, 4))}, {"model": {"a": {"b": 1}}}],
    ids=["list", "empty", "number", "text", "numeric key", "nested dict"],
)
def test_content_other_than_a_dict_of_tensors_is_rejected(tmp_path: Path, content: Any) -> None:
    with pytest.raises(CheckpointError, match="expected a dict of tensors"):
        load_checkpoint(write(tmp_path / "a.pt", content, {"0": VALUES.tobytes()}))


@pytest.mark.parametrize("keep", [4, 40, 200, -30])
def test_truncated_file_is_rejected(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {"0": VALUES.tobytes()})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        load_checkpoint(path)


def test_damaged_pickle_is_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00(X\xff\xff\x00\x00abc")
    with pytest.raises(CheckpointError, match="damaged") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


MEMO, COUNT = struct.pack("<I", 2**24), struct.pack("<Q", 2**26)


@pytest.mark.parametrize(
    "pickled",
    [b"}r" + MEMO + b".", b"}p16777216\n.", b"\x96" + COUNT + b".", b"\x8e" + COUNT + b".", b"\x8d" + COUNT + b"."],
    ids=["long_binput", "put", "bytearray8", "binbytes8", "binunicode8"],
)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_small_pickle_with_large_sizes_needs_little_memory(tmp_path: Path, pickled: bytes, zipped: bool) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"\x80\x02" + pickled)
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02" + pickled)
    assert path.stat().st_size < 200
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=r"^expected .*, got .") as caught:
            load_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20  # the legacy reader reads up to 16 MiB at once
    finally:
        tracemalloc.stop()
    assert str(caught.value).isprintable()


def test_large_byteorder_entry_is_not_read_completely(tmp_path: Path) -> None:
    large = "x" * 2**26
    path = write(
        tmp_path / "a.pt", {"a": tensor("0", (3, 4))}, {"0": VALUES.tobytes()}, large, compression=zipfile.ZIP_DEFLATED
    )
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="expected byteorder little or big, got b'xxxxxxxxxxxxxxxx'"):
            load_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_other_zip_files_are_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(CheckpointError, match="not a PyTorch checkpoint"):
        load_checkpoint(tmp_path / "a.zip")
