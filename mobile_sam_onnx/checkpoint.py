"""Opens a weights file of any kind this package reads: PyTorch, safetensors, npz. None of them can run code."""

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
    """The state dict in `path`: array by key, of any number type and shape; the builders check what they need.

    Raises:
        CheckpointError: absent, of no known format, damaged, or it holds anything but tensors.
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
        raise CheckpointError(f"expected a weights file at {path}, got: {error.strerror or error}") from error
    except MemoryError as error:
        raise CheckpointError(f"expected weights that fit into memory, got {path.name}") from error
    if head[TAR_MAGIC_OFFSET:].startswith(b"ustar"):
        raise CheckpointError(
            f"expected a PyTorch checkpoint, got {path.name} in the tar format of its first versions: "
            "load and save it once"
        )
    raise CheckpointError(f"expected a PyTorch checkpoint, .safetensors or .npz, got {path.name} of another format")


def _is_npz(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return all(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise CheckpointError(f"truncated or damaged checkpoint {path.name}: {error}") from error
