"""A reader of the files that `torch.save` wrote before 1.6, in which much that was published then still is.

Five pickles follow each other: a magic number, the format's version, what the machine was like, the state dict, and the
keys of its storages. Then come the storages in the order of the keys, each after its length. As in a zip checkpoint,
nothing but numpy arrays can come of it.
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
    native,
    plain,
    state_dict,
    unpickle,
)

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
LENGTH = np.dtype("<i8")
"""Of a storage, in front of its values."""


def read_torch_legacy(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """The state dict of such a file; bfloat16 comes as float32. Arrays may share memory.

    Raises:
        CheckpointError: damaged, unsafe, written on a big-endian machine, or not a (wrapped) dict of tensors.
    """
    with path.open("rb") as file:
        pickles = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    if unpickle(pickles) != MAGIC or unpickle(pickles) != VERSION:
        raise CheckpointError(f"expected a PyTorch checkpoint, got {path.name}, a pickle of something else")
    system = unpickle(pickles)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise CheckpointError(f"expected little-endian values, got {path.name} without a word that they are")
    entries = state_dict(unpickle(pickles))
    keys = unpickle(pickles)
    storages = _storages(path, pickles.tell(), entries, keys)

    def values(storage: Storage) -> npt.NDArray[np.generic]:
        if storage not in storages:
            raise CheckpointError(f"expected storage {plain(storage.key)} in the file, got none of its kind and length")
        return storages[storage]

    return {key: array(key, tensor, values) for key, tensor in entries.items()}


def _storages(
    path: Path, place: int, entries: Mapping[str, Tensor], keys: object
) -> dict[Storage, npt.NDArray[np.generic]]:
    """The values of every storage, which begin at a place of the file."""
    named = {entry.storage.key: entry.storage for entry in entries.values() if isinstance(entry.storage, Storage)}
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in named for key in keys):
        raise CheckpointError(f"expected the keys of the tensors' storages in {path.name}, got something else")
    found, size = {}, path.stat().st_size
    for storage in (named[key] for key in keys):
        dtype = np.dtype(STORAGES[storage.kind]).newbyteorder("<")
        end = place + LENGTH.itemsize + storage.length * dtype.itemsize
        if end > size or int(np.fromfile(path, LENGTH, 1, offset=place)[0]) != storage.length:
            raise CheckpointError(
                f"truncated or damaged checkpoint {path.name}: expected {storage.length} values at byte {place}"
            )
        flat = np.fromfile(path, dtype, storage.length, offset=place + LENGTH.itemsize)
        found[storage], place = native(flat, storage), end
    return found
