"""Readers of PyTorch's two checkpoint formats that can build only numpy arrays.

Since 1.6 `torch.save` writes a zip archive with a pickle, `<root>/data.pkl`. Its tensors refer to
raw storages, `<root>/data/<key>`, by persistent id. Earlier versions, which many published files
come from, wrote five pickles: a magic number, the format's version, the machine's byte order and
type sizes, the state dict, and the keys of its storages. The storages follow in the order of the
keys, each after its length.
"""

import io
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from sam_onnx.errors import CheckpointError
from sam_onnx.texts import shown
from sam_onnx.torch_pickle import (
    MAX_PICKLE_BYTES,
    STORAGES,
    Storage,
    Storages,
    array,
    state_dict,
    storages_of,
    to_native,
    unpickle,
)

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
LENGTH = np.dtype("<i8")
"""Length of a storage in a legacy file, in front of its values."""


def read_torch_zip(archive: zipfile.ZipFile, file: BinaryIO) -> dict[str, npt.NDArray[np.generic]]:
    """Return the state dict of a PyTorch zip checkpoint; bfloat16 becomes float32. Arrays may share
    memory.

    Raises:
        CheckpointError: the file is damaged, unsafe, or not a (wrapped) dict of tensors.
        zipfile.BadZipFile, EOFError, RuntimeError, zlib.error: the archive is damaged.
    """
    names = [
        name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")
    ]
    if len(names) != 1:
        raise CheckpointError(
            f"expected one data.pkl in {_name(file)}, got {len(names)}: not a PyTorch checkpoint"
        )
    root = names[0].removesuffix("data.pkl")
    info = archive.getinfo(names[0])
    if info.file_size > MAX_PICKLE_BYTES:
        raise CheckpointError(
            f"expected data.pkl of at most {MAX_PICKLE_BYTES} bytes, got {info.file_size}"
        )
    with archive.open(info) as entry:
        entries = state_dict(unpickle(entry))
    order = b"little"
    if f"{root}byteorder" in archive.namelist():
        with archive.open(f"{root}byteorder") as entry:
            order = entry.read(16)
    if order not in (b"little", b"big"):
        raise CheckpointError(f"expected byteorder little or big, got {order!r}")
    sign = "<" if order == b"little" else ">"
    storages = _zip_storages(archive, f"{root}data/", sign, _size(file), storages_of(entries))
    return {key: array(key, tensor, storages) for key, tensor in entries.items()}


def _zip_storages(
    archive: zipfile.ZipFile, folder: str, order: str, budget: int, wanted: Iterable[Storage]
) -> Storages:
    """Return the values of an archive's storages, together at most `budget` bytes."""
    values = {}
    for storage in wanted:
        try:
            info = archive.getinfo(folder + storage.key)
        except KeyError:
            raise CheckpointError(
                f"expected storage {shown(storage.key)} in the file, got none"
            ) from None
        dtype = np.dtype(order + STORAGES[storage.kind])
        expected = storage.length * dtype.itemsize
        if info.compress_type != zipfile.ZIP_STORED or info.file_size < expected:
            raise CheckpointError(
                f"expected storage {shown(storage.key)} of {expected} uncompressed bytes, got"
                f" {info.compress_size}"
            )
        budget -= info.file_size
        if budget < 0:
            raise CheckpointError(
                "expected storages that fit into the file, got more bytes than it has"
            )
        values[storage] = to_native(
            np.frombuffer(archive.read(info), dtype, storage.length), storage
        )
    return values


def read_torch_legacy(file: BinaryIO) -> dict[str, npt.NDArray[np.generic]]:
    """Return the state dict of a legacy checkpoint; bfloat16 becomes float32. Arrays may share
    memory.

    Raises:
        CheckpointError: the file is damaged, unsafe, big-endian, or not a (wrapped) dict of
            tensors.
    """
    pickles = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    if unpickle(pickles) != MAGIC or unpickle(pickles) != VERSION:
        raise CheckpointError(
            f"expected a PyTorch checkpoint, got {_name(file)}, a pickle of something else"
        )
    system = unpickle(pickles)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise CheckpointError(
            f"expected little-endian values, which {_name(file)} does not declare"
        )
    entries = state_dict(unpickle(pickles))
    storages = _legacy_storages(file, pickles, storages_of(entries))
    return {key: array(key, tensor, storages) for key, tensor in entries.items()}


def _legacy_storages(file: BinaryIO, pickles: io.BytesIO, wanted: Iterable[Storage]) -> Storages:
    """Return the values of all storages, whose keys are the next pickle."""
    keys, named = unpickle(pickles), {storage.key: storage for storage in wanted}
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in named for key in keys):
        raise CheckpointError(
            f"expected the keys of the tensors' storages in {_name(file)}, got something else"
        )
    if len(set(keys)) < len(keys):
        raise CheckpointError(f"expected each storage once in {_name(file)}, got one twice")
    values, offset, size = {}, pickles.tell(), _size(file)
    for storage in (named[key] for key in keys):
        dtype = np.dtype(STORAGES[storage.kind]).newbyteorder("<")
        end = offset + LENGTH.itemsize + storage.length * dtype.itemsize
        file.seek(offset)
        if (
            end > size
            or int.from_bytes(file.read(LENGTH.itemsize), "little", signed=True) != storage.length
        ):
            raise CheckpointError(
                f"truncated or damaged checkpoint {_name(file)}: expected {storage.length} values"
                f" at byte {offset}"
            )
        flat = np.fromfile(file, dtype, storage.length)
        values[storage], offset = to_native(flat, storage), end
    return values


def _name(file: BinaryIO) -> str:
    return Path(file.name).name


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size
