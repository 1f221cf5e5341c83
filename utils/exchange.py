"""The memory file of one request, through which large values go to Triton's models and come back.

A memfd_create(2) file that the models open by its name below /proc, as `mobile_sam_call` beside them describes. It ends
with the request, whatever ends that; by it the models know that nobody waits for their answer any more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from utils.tensors import Tensor

INLINE_BYTES = 64 * 1024
"""Values up to this size go through Triton."""
CHUNK_BYTES = 256 * 1024
"""What of a large answer is read at once, for one write to its caller."""
WRITTEN_AT_ONCE = 1_000_000
"""Bytes that take less than a millisecond; more are written beside the event loop."""


class Exchange:
    """The file of a request. As a context manager it closes where that fails; else whoever has the answer closes it."""

    def __init__(self, deadline: float) -> None:
        """Make an empty one.

        Args:
            deadline: on the monotonic clock; later nobody waits for an answer.
        """
        self._fd = os.memfd_create("mobile_sam")
        self.deadline = deadline
        self._inputs: dict[str, dict[str, Any]] = {}
        self._size = 0

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.close()

    def __del__(self) -> None:
        self.close()

    async def put(self, inputs: dict[Tensor, npt.NDArray[Any]]) -> dict[Tensor, npt.NDArray[Any]]:
        """Write what is large; what is left goes through Triton.

        Args:
            inputs: of a model. Of a name that the file has already, nothing is written again.
        """
        left = {}
        for tensor, value in inputs.items():
            plain: Any = value[0] if tensor.datatype == "BYTES" else np.ascontiguousarray(value)
            data = memoryview(plain).cast("B")
            if data.nbytes <= INLINE_BYTES:
                left[tensor] = value
            elif tensor.name not in self._inputs:
                if data.nbytes <= WRITTEN_AT_ONCE:
                    self._write(data)
                else:
                    await asyncio.to_thread(self._write, data)
                dtype = "bytes" if tensor.datatype == "BYTES" else value.dtype.str
                place = {"offset": self._size, "bytes": data.nbytes, "dtype": dtype, "shape": value.shape}
                self._inputs[tensor.name] = place
                self._size += data.nbytes
        return left

    def describe(self, *, light: bool) -> npt.NDArray[np.object_]:
        """The value of the models' input `exchange`.

        Args:
            light: the model is to refuse what takes long.
        """
        told = {
            "file": f"/proc/{os.getpid()}/fd/{self._fd}",
            "inode": os.fstat(self._fd).st_ino,
            "deadline": self.deadline,
            "inputs": self._inputs,
            "light": light,
        }
        return np.array([orjson.dumps(told)], np.object_)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes that a model has written."""
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        """The request is over."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: memoryview) -> None:
        written = 0
        while written < data.nbytes:
            written += os.pwrite(self._fd, data[written:], self._size + written)


@dataclass(frozen=True)
class Spooled:
    """A part of an answer that lies in a request's file."""

    exchange: Exchange
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def chunks(self) -> Iterator[bytes]:
        """All of it, in pieces."""
        for start in range(0, self.size, CHUNK_BYTES):
            yield self.exchange.read(self.offset + start, min(CHUNK_BYTES, self.size - start))


Content = bytes | Spooled
"""A part of an answer."""


def chunks(content: Content) -> Iterator[bytes]:
    """A part of an answer, in pieces of `CHUNK_BYTES`."""
    if isinstance(content, Spooled):
        yield from content.chunks()
    else:
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]


def as_bytes(content: Content) -> bytes:
    """A part of an answer as a whole."""
    return b"".join(chunks(content))
