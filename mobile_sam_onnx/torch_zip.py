"""A reader of PyTorch's zip checkpoints (`torch.save` since 1.6) that can build numpy arrays and nothing else.

The archive holds a pickle, `<root>/data.pkl`, whose tensors name raw storages, `<root>/data/<key>`, by persistent id.
A pickle is a program; this one may only call the few constructors below, each of which records its arguments. What
they say about sizes is checked against the bytes that are really there before any array is made.
"""

import collections
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mobile_sam_onnx.errors import CheckpointError

MAX_PICKLE_BYTES = 16 * 2**20
MAX_DIMENSIONS = 8
STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": "u2",  # widened to float32 below
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


class _Storage(NamedTuple):
    kind: str
    key: str
    length: int


class _Tensor(NamedTuple):
    storage: object
    offset: object
    size: object
    stride: object


def read_torch_zip(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """The state dict of a PyTorch zip checkpoint; bfloat16 comes as float32. Arrays may share memory.

    Raises:
        CheckpointError: damaged, unsafe, or not a (wrapped) dict of tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
            if len(names) != 1:
                raise CheckpointError(
                    f"expected one data.pkl in {path.name}, got {len(names)}: not a PyTorch checkpoint"
                )
            root = names[0].removesuffix("data.pkl")
            info = archive.getinfo(names[0])
            if info.file_size > MAX_PICKLE_BYTES:
                raise CheckpointError(f"expected data.pkl of at most {MAX_PICKLE_BYTES} bytes, got {info.file_size}")
            with archive.open(info) as file:
                content = _unpickle(file)
            entries = _state_dict(content)
            order = archive.read(f"{root}byteorder") if f"{root}byteorder" in archive.namelist() else b"little"
            if order not in (b"little", b"big"):
                raise CheckpointError(f"expected byteorder little or big, got {order[:16]!r}")
            storages = _Storages(archive, f"{root}data/", "<" if order == b"little" else ">", path.stat().st_size)
            return {key: _array(key, tensor, storages) for key, tensor in entries.items()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"truncated or damaged checkpoint {path.name}: {error}") from error


class _Unpickler(pickle.Unpickler):
    """Allows the names of `find_class`; what it hands out is made anew per file, so that a pickle can alter nothing."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return name
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch", "Size"): lambda items=(): tuple(items),
            ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, size, stride, *_: _Tensor(
                storage, offset, size, stride
            ),
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
        }
        if (module, name) not in allowed:
            raise CheckpointError(f"refused: expected tensors only, got a reference to {_plain(f'{module}.{name}')}")
        return allowed[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage"):
            raise CheckpointError("expected a storage as persistent id, got something else")
        _, kind, key, _, length = pid
        if not (isinstance(kind, str) and kind in STORAGES and isinstance(key, str) and _is_count(length)):
            raise CheckpointError("expected a storage of numbers with its key and length, got something else")
        return _Storage(kind, key, length)


def _unpickle(file: IO[bytes]) -> object:
    try:
        return _Unpickler(file).load()
    except (CheckpointError, zipfile.BadZipFile):
        raise
    except Exception as error:  # a damaged pickle fails in any way it likes
        raise CheckpointError(f"expected a pickled state dict, got a damaged one: {_plain(str(error))}") from error


def _state_dict(content: object) -> Mapping[str, _Tensor]:
    """The tensors by key: of the dict itself, or of its `model` or `state_dict`, less a `module.` before every key."""
    for wrapper in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content:
        raise CheckpointError(
            f"expected a dict of tensors, got {'an empty one' if content == {} else type(content).__name__}"
        )
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, _Tensor):
            raise CheckpointError(f"expected a dict of tensors, got {type(value).__name__} at {_plain(str(key))}")
    if all(key.startswith("module.") for key in content):
        content = {key.removeprefix("module."): value for key, value in content.items()}
    return content


class _Storages:
    """The raw storages of an archive, each read once and only as long as the file really is."""

    def __init__(self, archive: zipfile.ZipFile, folder: str, order: str, budget: int) -> None:
        self._archive, self._folder, self._order, self._budget = archive, folder, order, budget
        self._read: dict[_Storage, npt.NDArray[np.generic]] = {}

    def get(self, storage: _Storage) -> npt.NDArray[np.generic]:
        if storage not in self._read:
            self._read[storage] = self._load(storage)
        return self._read[storage]

    def _load(self, storage: _Storage) -> npt.NDArray[np.generic]:
        name = self._folder + storage.key
        try:
            info = self._archive.getinfo(name)
        except KeyError:
            raise CheckpointError(f"expected storage {_plain(storage.key)} in the file, got none") from None
        dtype = np.dtype(self._order + STORAGES[storage.kind])
        expected = storage.length * dtype.itemsize
        if info.compress_type != zipfile.ZIP_STORED or info.file_size < expected:
            raise CheckpointError(
                f"expected storage {_plain(storage.key)} of {expected} uncompressed bytes, got {info.compress_size}"
            )
        self._budget -= info.file_size
        if self._budget < 0:
            raise CheckpointError("expected storages that fit into the file, got more bytes than it has")
        flat = np.frombuffer(self._archive.read(info), dtype, storage.length)
        if storage.kind == "BFloat16Storage":
            return (flat.astype(np.uint32) << 16).view(np.float32)
        return flat.astype(dtype.newbyteorder("="), copy=False)


def _array(key: str, tensor: _Tensor, storages: _Storages) -> npt.NDArray[np.generic]:
    storage, offset, size, stride = tensor
    if not isinstance(storage, _Storage) or not _is_count(offset):
        raise CheckpointError(f"expected {_plain(key)} to name a storage and an offset, got something else")
    shape, strides = _counts(key, size), _counts(key, stride)
    if len(shape) != len(strides) or len(shape) > MAX_DIMENSIONS:
        raise CheckpointError(
            f"expected as many strides as sizes in {_plain(key)}, got {len(strides)} and {len(shape)}"
        )
    flat = storages.get(storage)
    assert isinstance(offset, int)
    count = int(np.prod([1, *shape], dtype=object))
    last = offset + sum((length - 1) * step for length, step in zip(shape, strides, strict=True)) if count else -1
    if last >= flat.size or count > flat.size:
        raise CheckpointError(f"expected {_plain(key)} within its storage of {flat.size} values, got {shape}")
    if not count:
        return np.empty(shape, flat.dtype)
    steps = tuple(step * flat.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)


def _counts(key: str, values: object) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(map(_is_count, values)):
        raise CheckpointError(f"expected sizes and strides of {_plain(key)} as whole numbers, got something else")
    return tuple(values)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40


def _plain(text: str) -> str:
    """Text of the file, safe to print on one line."""
    return "".join(character if character.isprintable() else "?" for character in text)[:120]
