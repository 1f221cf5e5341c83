"""Reader of weights files: PyTorch, safetensors, npz. No file can run code."""

import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mobile_sam_onnx.array_files import read_npz, read_safetensors
from mobile_sam_onnx.errors import CheckpointError
from mobile_sam_onnx.torch_legacy import read_torch_legacy
from mobile_sam_onnx.torch_zip import read_torch_zip

ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"
TAR_MAGIC_OFFSET = 257


def load_checkpoint(path: Path | str) -> dict[str, npt.NDArray[np.generic]]:
    """Return the state dict of a file: array by key, of any numeric type and shape, which the builders check.

    Raises:
        CheckpointError: the file is missing, damaged, of an unknown format, or has anything but tensors.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(512)
        if path.suffix == ".safetensors":
            return read_safetensors(path)
        if head.startswith(ZIP_MAGIC):
            return read_npz(path) if _is_npz(path) else read_torch_zip(path)
        if head.startswith(PICKLE_MAGIC):
            return read_torch_legacy(path)
    except OSError as error:
        raise CheckpointError(f"cannot read the weights file {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise CheckpointError(f"not enough memory to read {path.name}") from error
    if head[TAR_MAGIC_OFFSET:].startswith(b"ustar"):
        raise CheckpointError(
            f"{path.name} is in the tar format of the first PyTorch versions; load and save it with a newer one"
        )
    raise CheckpointError(f"expected a PyTorch checkpoint, .safetensors or .npz, got {path.name} of another format")


def _is_npz(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return all(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise CheckpointError(f"truncated or damaged checkpoint {path.name}: {error}") from error
