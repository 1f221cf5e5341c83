"""Reader of the files that `torch.save` wrote before 1.6; many published checkpoints are still of this kind.

Such a file has five pickles: a magic number, the format's version, the machine's byte order and type sizes, the state
dict, and the keys of its storages. The storages follow in the order of the keys, each after its length. As with zip
checkpoints, the reader can build only numpy arrays.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mobile_sam_onnx.errors import CheckpointError
from mobile_sam_onnx.torch_pickle import (
    MAX_PICKLE_BYTES,
    STORAGES,
    Storage,
    Tensor,
    array,
    printable,
    state_dict,
    to_native,
    unpickle,
)

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
LENGTH = np.dtype("<i8")
"""Length of a storage, in front of its values."""


def read_torch_legacy(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """Return the state dict of a legacy checkpoint; bfloat16 becomes float32. Arrays may share memory.

    Raises:
        CheckpointError: the file is damaged, unsafe, big-endian, or not a (wrapped) dict of tensors.
    """
    with path.open("rb") as file:
        pickles = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    if unpickle(pickles) != MAGIC or unpickle(pickles) != VERSION:
        raise CheckpointError(f"expected a PyTorch checkpoint, got {path.name}, a pickle of something else")
    system = unpickle(pickles)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise CheckpointError(f"expected little-endian values, which {path.name} does not declare")
    entries = state_dict(unpickle(pickles))
    keys = unpickle(pickles)
    storages = _storages(path, pickles.tell(), entries, keys)

    def values(storage: Storage) -> npt.NDArray[np.generic]:
        if storage not in storages:
            raise CheckpointError(
                f"expected storage {printable(storage.key)} in the file, got none of its kind and length"
            )
        return storages[storage]

    return {key: array(key, tensor, values) for key, tensor in entries.items()}


def _storages(
    path: Path, offset: int, entries: Mapping[str, Tensor], keys: object
) -> dict[Storage, npt.NDArray[np.generic]]:
    """Return the values of all storages, which begin at a byte offset of the file."""
    named = {entry.storage.key: entry.storage for entry in entries.values() if isinstance(entry.storage, Storage)}
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in named for key in keys):
        raise CheckpointError(f"expected the keys of the tensors' storages in {path.name}, got something else")
    found, size = {}, path.stat().st_size
    for storage in (named[key] for key in keys):
        dtype = np.dtype(STORAGES[storage.kind]).newbyteorder("<")
        end = offset + LENGTH.itemsize + storage.length * dtype.itemsize
        if end > size or int(np.fromfile(path, LENGTH, 1, offset=offset)[0]) != storage.length:
            raise CheckpointError(
                f"truncated or damaged checkpoint {path.name}: expected {storage.length} values at byte {offset}"
            )
        flat = np.fromfile(path, dtype, storage.length, offset=offset + LENGTH.itemsize)
        found[storage], offset = to_native(flat, storage), end
    return found
