"""Reader of PyTorch's zip checkpoints (`torch.save` since 1.6) that can build only numpy arrays.

The archive has a pickle, `<root>/data.pkl`, whose tensors refer to raw storages, `<root>/data/<key>`, by persistent id.
"""

import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mobile_sam_onnx.errors import CheckpointError
from mobile_sam_onnx.torch_pickle import (
    MAX_PICKLE_BYTES,
    STORAGES,
    Storage,
    array,
    printable,
    state_dict,
    to_native,
    unpickle,
)


def read_torch_zip(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """Return the state dict of a PyTorch zip checkpoint; bfloat16 becomes float32. Arrays may share memory.

    Raises:
        CheckpointError: the file is damaged, unsafe, or not a (wrapped) dict of tensors.
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
                content = unpickle(file)
            entries = state_dict(content)
            order = b"little"
            if f"{root}byteorder" in archive.namelist():
                with archive.open(f"{root}byteorder") as file:
                    order = file.read(16)
            if order not in (b"little", b"big"):
                raise CheckpointError(f"expected byteorder little or big, got {order!r}")
            storages = _Storages(archive, f"{root}data/", "<" if order == b"little" else ">", path.stat().st_size)
            return {key: array(key, tensor, storages.get) for key, tensor in entries.items()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"truncated or damaged checkpoint {path.name}: {error}") from error


class _Storages:
    """Raw storages of an archive, each read once; together they may not exceed the size of the file."""

    def __init__(self, archive: zipfile.ZipFile, folder: str, order: str, budget: int) -> None:
        self._archive, self._folder, self._order, self._budget = archive, folder, order, budget
        self._read: dict[Storage, npt.NDArray[np.generic]] = {}

    def get(self, storage: Storage) -> npt.NDArray[np.generic]:
        if storage not in self._read:
            self._read[storage] = self._load(storage)
        return self._read[storage]

    def _load(self, storage: Storage) -> npt.NDArray[np.generic]:
        name = self._folder + storage.key
        try:
            info = self._archive.getinfo(name)
        except KeyError:
            raise CheckpointError(f"expected storage {printable(storage.key)} in the file, got none") from None
        dtype = np.dtype(self._order + STORAGES[storage.kind])
        expected = storage.length * dtype.itemsize
        if info.compress_type != zipfile.ZIP_STORED or info.file_size < expected:
            raise CheckpointError(
                f"expected storage {printable(storage.key)} of {expected} uncompressed bytes, got {info.compress_size}"
            )
        self._budget -= info.file_size
        if self._budget < 0:
            raise CheckpointError("expected storages that fit into the file, got more bytes than it has")
        return to_native(np.frombuffer(self._archive.read(info), dtype, storage.length), storage)
