"""Reader of weights files: PyTorch, safetensors, npz. No file can run code."""

import os
import warnings
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import deserialize

from sam_onnx.archives import open_archive
from sam_onnx.errors import CheckpointError
from sam_onnx.files import open_regular
from sam_onnx.layouts import authors_layout
from sam_onnx.texts import shown
from sam_onnx.torch_files import read_torch_legacy, read_torch_zip
from sam_onnx.torch_pickle import widen_bfloat16

ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"
TAR_MAGIC_OFFSET = 257
NPY = ".npy"
MAX_EXPANSION = 20
"""Bytes of an archive's arrays for each byte of the file, above `MIN_BOUNDED_BYTES`: weights
compress little."""
MIN_BOUNDED_BYTES = 2**24
MAX_HEADER_BYTES = 4 * 2**20
"""Size of a safetensors file's header; ViT-H's takes a fiftieth."""
MAX_TENSORS = 4096
"""Tensors of a checkpoint; those of ViT-H, Hiera-L and SAM-HQ are fewer than 1000."""
MAX_SHARING = 4
"""Bytes of all tensors for each byte of the file: bfloat16 doubles, and a few tensors share
their values."""
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

Arrays = dict[str, npt.NDArray[np.generic]]


def load_checkpoint(path: Path | str) -> Arrays:
    """Return the state dict of a file: array by key, of any numeric type and shape, which the
    builders check.

    A checkpoint of Segment Anything's family has the authors' keys, whatever its layout. Time and
    memory are bounded by a small multiple of the file's size.

    Raises:
        CheckpointError: the file is missing, no regular file, damaged, of an unknown format, or has
            anything but tensors.
    """
    path = Path(path)
    try:
        with open_regular(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's about old headers
            arrays = _read(file, path)
            _check_sizes(arrays, os.fstat(file.fileno()).st_size)
            return authors_layout(arrays)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"cannot read the weights file {path}: {error.strerror or error}"
        ) from error
    except MemoryError as error:
        raise CheckpointError(f"not enough memory to read {path.name}") from error
    except Exception as error:  # the parsers raise many types on damaged files
        reason = shown(str(error)) or type(error).__name__
        raise CheckpointError(f"truncated or damaged file {path.name}: {reason}") from error


def _read(file: BinaryIO, path: Path) -> Arrays:
    """Return the tensors of a file by the keys that it has."""
    head = file.read(512)
    file.seek(0)
    if path.suffix == ".safetensors":
        return _read_safetensors(file)
    if head.startswith(ZIP_MAGIC):
        archive = open_archive(file)
        is_npz = all(name.endswith(NPY) for name in archive.namelist())
        return _read_npz(archive, file) if is_npz else read_torch_zip(archive, file)
    if head.startswith(PICKLE_MAGIC):
        return read_torch_legacy(file)
    if head[TAR_MAGIC_OFFSET:].startswith(b"ustar"):
        raise CheckpointError(
            f"{path.name} is in the tar format of the first PyTorch versions; load and save it with"
            " a newer one"
        )
    raise CheckpointError(
        f"expected a PyTorch checkpoint, .safetensors or .npz, got {path.name} of another format"
    )


def _check_sizes(arrays: Arrays, file_bytes: int) -> None:
    """Refuse a small file that makes much work: one of many tensors, or of tensors that share
    their values.
    """
    if len(arrays) > MAX_TENSORS:
        raise CheckpointError(f"expected at most {MAX_TENSORS} tensors, got {len(arrays)}")
    budget = MAX_SHARING * file_bytes
    if sum(array.nbytes for array in arrays.values()) > max(
        budget, MAX_EXPANSION * MIN_BOUNDED_BYTES
    ):
        raise CheckpointError(
            f"expected tensors of at most {budget} bytes in a file of {file_bytes}, got more"
        )


def _read_safetensors(file: BinaryIO) -> Arrays:
    """Return the tensors of a safetensors file; bfloat16, which NumPy lacks, becomes float32."""
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"expected a header of at most {MAX_HEADER_BYTES} bytes, got {length}")
    file.seek(0)
    arrays: Arrays = {}
    for key, tensor in deserialize(file.read()):  # type: ignore[no-untyped-call]
        kind = tensor["dtype"]
        if kind not in SAFETENSORS_TYPES:
            raise CheckpointError(
                f"expected {shown(key)} to hold numbers of a type in NumPy, got {kind}"
            )
        flat = np.frombuffer(tensor["data"], SAFETENSORS_TYPES[kind])
        arrays[key] = (widen_bfloat16(flat) if kind == "BF16" else flat).reshape(tensor["shape"])
    return arrays


def _read_npz(archive: zipfile.ZipFile, file: BinaryIO) -> Arrays:
    """Return the arrays of an `.npz` file, without unpickling."""
    entries = archive.infolist()
    limit = max(MIN_BOUNDED_BYTES, MAX_EXPANSION * os.fstat(file.fileno()).st_size)
    if sum(entry.file_size for entry in entries) > limit:
        raise CheckpointError(
            f"expected arrays of at most {limit} bytes in a file of this size, got more"
        )
    arrays: Arrays = {}
    for entry in entries:
        with archive.open(entry) as member:
            array = np.lib.format.read_array(member, allow_pickle=False)  # type: ignore[no-untyped-call]
            arrays[entry.filename.removesuffix(NPY)] = array
    return arrays
