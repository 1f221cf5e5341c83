"""Readers of `.safetensors` files (github.com/huggingface/safetensors#format) and `.npz` files."""

import json
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mobile_sam_onnx.errors import CheckpointError

MAX_HEADER_BYTES = 4 * 2**20
MAX_ARCHIVE_BYTES = 2**30  # uncompressed; MobileSAM in float64 is 81 MB
DTYPES = {
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


def read_safetensors(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """Return the tensors of a safetensors file; bfloat16 becomes float32.

    Raises:
        CheckpointError: the header is damaged or points outside the file.
    """
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    if length > min(MAX_HEADER_BYTES, len(content) - 8):
        raise CheckpointError(f"truncated or damaged file {path.name}: expected a header of {length} bytes")
    try:
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        data = memoryview(content)[8 + length :]
        return {key: _tensor(key, entry, data) for key, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"truncated or damaged file {path.name}: {error}") from error


def _tensor(key: str, entry: dict[str, Any], data: memoryview) -> npt.NDArray[np.generic]:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    dtype = np.dtype(DTYPES[entry["dtype"]])
    expected = int(np.prod([dtype.itemsize, *shape], dtype=object))
    if not (0 <= begin <= end <= len(data) and end - begin == expected):
        raise CheckpointError(f"expected {key} to have {expected} bytes within the file, got {begin} to {end}")
    flat = np.frombuffer(data[begin:end], dtype)
    if entry["dtype"] == "BF16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.reshape(shape)


def read_npz(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of an `.npz` file, without unpickling.

    Raises:
        CheckpointError: the file is damaged, or an array is not numeric or does not match its file size.
    """
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > MAX_ARCHIVE_BYTES:
                raise CheckpointError(f"expected at most {MAX_ARCHIVE_BYTES} bytes in {path.name}, got more")
            for info in archive.infolist():
                key = info.filename.removesuffix(".npy")
                with archive.open(info) as file:
                    shape, fortran, dtype = _npy_header(file)
                    expected = int(np.prod([dtype.itemsize, *shape], dtype=object))
                    if dtype.hasobject or expected + file.tell() != info.file_size:
                        raise CheckpointError(f"expected {key} to hold {shape} numbers, got {info.file_size} bytes")
                    flat = np.frombuffer(file.read(), dtype)
                arrays[key] = flat.reshape(shape, order="F" if fortran else "C")
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"truncated or damaged file {path.name}: {error}") from error
    return arrays


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    formats: Any = np.lib.format
    if formats.read_magic(file) == (1, 0):
        header: tuple[tuple[int, ...], bool, np.dtype[Any]] = formats.read_array_header_1_0(file)
    else:
        header = formats.read_array_header_2_0(file)
    return header
