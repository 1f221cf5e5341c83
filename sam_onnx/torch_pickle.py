"""Safe reader of the pickles in PyTorch's checkpoints, which can build only numpy arrays.

A pickle is a program; here it may only call the few constructors below, which record their
arguments. No opcode does more work than the bytes that it reads and the items that it takes off the
stack, so that the size of the pickle bounds time and memory. The sizes of tensors are checked
against the values in the file before any array is made.
"""

import pickle
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from sam_onnx.errors import CheckpointError
from sam_onnx.texts import shown

MAX_PICKLE_BYTES = 4 * 2**20
"""Size of a checkpoint's pickles; MobileSAM's take a fiftieth."""
MAX_ARGUMENTS = 8
MAX_DIMENSIONS = 8
NAMES = (
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE"
    " EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS"
    " BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL REDUCE BUILD BINPERSID"
)
OPCODES = frozenset(getattr(pickle, name)[0] for name in NAMES.split())
"""Opcodes that `torch.save` writes."""
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


class Storage(NamedTuple):
    """Reference to values that tensors share, as in the checkpoint."""

    kind: str
    """A key of `STORAGES`."""
    key: str
    length: int


Storages = Mapping[Storage, npt.NDArray[np.generic]]
"""Values of storages, (N,) each."""


class TensorEntry(NamedTuple):
    """A tensor as described in the checkpoint, unchecked."""

    storage: object
    offset: object
    size: object
    stride: object


class _Dispatch(dict[int, Any]):
    def __missing__(self, opcode: int) -> Any:
        raise CheckpointError(f"refused: expected an opcode that torch.save writes, got {opcode}")


class _Unpickler(pickle._Unpickler):
    """Unpickler that allows only the names in `find_class`, and makes new objects for each file.

    It derives from the slower unpickler in Python: the one in C allocates as much memory as the
    pickle asks for (2^28 memo entries, texts longer than the file), and its opcodes cannot be
    replaced. A state dict takes milliseconds.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Any]] = _Dispatch(
        {code: pickle._Unpickler.dispatch[code] for code in OPCODES}
    )

    def _set_item(self) -> None:
        value = self.stack.pop()
        self._set([self.stack.pop(), value])

    def _set_items(self) -> None:
        self._set(self.pop_mark())

    def _set(self, items: list[Any]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=True):
            # The hash of a tuple visits all its items, which may be one tuple again and again;
            # large numbers can share one hash.
            if not isinstance(key, str) and not _is_count(key):
                raise CheckpointError(
                    f"refused: expected texts and small numbers as keys, got {type(key).__name__}"
                )
            self.stack[-1][key] = value

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        if not isinstance(arguments, tuple) or len(arguments) > MAX_ARGUMENTS:
            raise CheckpointError(
                f"refused: expected a call with at most {MAX_ARGUMENTS} arguments, got another one"
            )
        self.stack[-1] = self.stack[-1](*arguments)

    def _build(self) -> None:
        self.stack.pop()  # attributes, such as a state dict's `_metadata`

    dispatch |= {
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
        pickle.REDUCE[0]: _reduce,
        pickle.BUILD[0]: _build,
    }

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return name
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): lambda: {},
            ("torch", "Size"): lambda items=(): items,
            ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: TensorEntry(*arguments[:4]),
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
        }
        if not name:
            raise EOFError("the file ends within a name")
        if (module, name) not in allowed:
            raise CheckpointError(
                f"refused: expected tensors only, got a reference to {shown(f'{module}.{name}')},"
                " as in a pickled module such as SlimSAM's; save its state_dict(), or use its"
                " .safetensors"
            )
        return allowed[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        if not (
            isinstance(pid, tuple)
            and len(pid) in (5, 6)
            and pid[0] == "storage"
            and pid[5:] in ((), (None,))
        ):
            raise CheckpointError("expected a storage as persistent id, got something else")
        _, kind, key, _, length = pid[:5]
        if not (
            isinstance(kind, str)
            and kind in STORAGES
            and isinstance(key, str)
            and _is_count(length)
        ):
            raise CheckpointError(
                "expected a storage of numbers with its key and length, got something else"
            )
        return Storage(kind, key, length)


def unpickle(file: IO[bytes]) -> object:
    """Read the next pickle of a file; tensors become `TensorEntry`.

    Raises:
        CheckpointError: the pickle is damaged or refers to anything but tensors.
    """
    try:
        return _Unpickler(file).load()
    except (CheckpointError, zipfile.BadZipFile):
        raise
    except Exception as error:  # damaged pickles raise many types
        reason = shown(f"{type(error).__name__}: {error}").rstrip(": ")
        raise CheckpointError(
            f"expected a pickled state dict, got a damaged one: {reason}"
        ) from error


def state_dict(content: object) -> Mapping[str, TensorEntry]:
    """Return the tensors by key, from the dict itself or its `model` or `state_dict`, without a
    `module.` prefix.

    Raises:
        CheckpointError: the content is not such a dict.
    """
    for wrapper in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content:
        raise CheckpointError(
            "expected a dict of tensors, got"
            f" {'an empty one' if content == {} else type(content).__name__}"
        )
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, TensorEntry):
            raise CheckpointError(
                f"expected a dict of tensors, got {type(value).__name__} at {shown(str(key))}"
            )
    if all(key.startswith("module.") for key in content):
        content = {key.removeprefix("module."): value for key, value in content.items()}
    return content


def widen_bfloat16(bits: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Return the float32 values of bfloat16 ones, given as uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_native(flat: npt.NDArray[np.generic], storage: Storage) -> npt.NDArray[np.generic]:
    """Return the values of a storage in this machine's byte order, bfloat16 as float32."""
    if storage.kind == "BFloat16Storage":
        return widen_bfloat16(flat)
    return flat.astype(flat.dtype.newbyteorder("="), copy=False)


def storages_of(tensors: Mapping[str, TensorEntry]) -> list[Storage]:
    """Return the storages that tensors name, each once."""
    return list(
        dict.fromkeys(
            each.storage for each in tensors.values() if isinstance(each.storage, Storage)
        )
    )


def array(key: str, tensor: TensorEntry, storages: Storages) -> npt.NDArray[np.generic]:
    """Return a tensor as an array, which may share memory with others.

    Raises:
        CheckpointError: the tensor does not fit into its storage.
    """
    storage, offset, size, stride = tensor
    if not isinstance(storage, Storage) or not _is_count(offset):
        raise CheckpointError(
            f"expected {shown(key)} to name a storage and an offset, got something else"
        )
    shape, strides = _counts(key, size), _counts(key, stride)
    if len(shape) != len(strides):
        raise CheckpointError(
            f"expected as many strides as sizes in {shown(key)}, got {len(strides)} and"
            f" {len(shape)}"
        )
    if storage not in storages:
        raise CheckpointError(
            f"expected storage {shown(storage.key)} in the file, got none of its kind and length"
        )
    flat = storages[storage]
    assert isinstance(offset, int)
    count = int(np.prod([1, *shape], dtype=object))
    last = (
        offset + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
        if count
        else -1
    )
    if last >= flat.size or count > flat.size:
        raise CheckpointError(
            f"expected {shown(key)} within its storage of {flat.size} values, got {shape}"
        )
    if not count:
        return np.empty(shape, flat.dtype)
    steps = tuple(step * flat.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)


def _counts(key: str, values: object) -> tuple[int, ...]:
    if (
        not isinstance(values, (tuple, list))
        or len(values) > MAX_DIMENSIONS
        or not all(map(_is_count, values))
    ):
        expected = f"at most {MAX_DIMENSIONS} whole numbers as sizes and strides of {shown(key)}"
        raise CheckpointError(f"expected {expected}, got something else")
    return tuple(values)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40
