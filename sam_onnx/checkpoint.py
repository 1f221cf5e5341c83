"""Reader of weights files: PyTorch, safetensors, npz. No file can run code."""

import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, deserialize

from sam_onnx.errors import CheckpointError
from sam_onnx.layouts import authors_layout
from sam_onnx.torch_files import read_torch_legacy, read_torch_zip
from sam_onnx.torch_pickle import widen_bfloat16

ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"
TAR_MAGIC_OFFSET = 257
MAX_ARCHIVE_BYTES = 6 * 2**30  # uncompressed; ViT-H in float64 is 5.1 GB
SAFETENSORS_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # widened to float32 below
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}

DAMAGES = (SafetensorError, zipfile.BadZipFile, ValueError, EOFError, RuntimeError)
"""Errors of the readers of damaged files."""

Arrays = dict[str, npt.NDArray[np.generic]]


def load_checkpoint(path: Path | str) -> Arrays:
    """Return the state dict of a file: array by key, of any numeric type and shape, which the builders check.

    A checkpoint of Segment Anything's family has the authors' keys, whatever its layout.

    Raises:
        CheckpointError: the file is missing, damaged, of an unknown format, or has anything but tensors.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(512)
        if path.suffix == ".safetensors":
            return authors_layout(_read_safetensors(path))
        if head.startswith(ZIP_MAGIC):
            return authors_layout(_read_npz(path) if _is_npz(path) else read_torch_zip(path))
        if head.startswith(PICKLE_MAGIC):
            return authors_layout(read_torch_legacy(path))
    except OSError as error:
        raise CheckpointError(f"cannot read the weights file {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise CheckpointError(f"not enough memory to read {path.name}") from error
    except DAMAGES as error:
        raise CheckpointError(f"truncated or damaged file {path.name}: {error}") from error
    if head[TAR_MAGIC_OFFSET:].startswith(b"ustar"):
        raise CheckpointError(
            f"{path.name} is in the tar format of the first PyTorch versions; load and save it with a newer one"
        )
    raise CheckpointError(f"expected a PyTorch checkpoint, .safetensors or .npz, got {path.name} of another format")


def _read_safetensors(path: Path) -> Arrays:
    """Return the tensors of a safetensors file; bfloat16, which NumPy lacks, becomes float32."""
    arrays: Arrays = {}
    for key, tensor in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        kind = tensor["dtype"]
        if kind not in SAFETENSORS_TYPES:
            raise CheckpointError(f"expected {key} to hold numbers of a type in NumPy, got {kind}")
        flat = np.frombuffer(tensor["data"], SAFETENSORS_TYPES[kind])
        arrays[key] = (widen_bfloat16(flat) if kind == "BF16" else flat).reshape(tensor["shape"])
    return arrays


def _is_npz(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return all(name.endswith(".npy") for name in archive.namelist())


def _read_npz(path: Path) -> Arrays:
    """Return the arrays of an `.npz` file, without unpickling."""
    with np.load(path, allow_pickle=False) as file:
        if sum(info.file_size for info in file.zip.infolist()) > MAX_ARCHIVE_BYTES:
            raise CheckpointError(f"expected at most {MAX_ARCHIVE_BYTES} bytes in {path.name}, got more")
        arrays: Arrays = dict(file)
    # NumPy returns the bytes of an entry that does not begin like an array.
    if others := [key for key, value in arrays.items() if not isinstance(value, np.ndarray)]:
        raise ValueError(f"expected {others[0]} to be an array")
    return arrays
