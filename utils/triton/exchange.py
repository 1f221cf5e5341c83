"""The exchange of one request with Triton's models: its inputs, its memory file, and the translation of failures.

The file carries large tensors to the models and back. They open the memfd_create(2) file by its path in /proc;
`orchestrator.call` is their side. The file is closed when the request ends for any reason, which tells the models that
the caller is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np
import numpy.typing as npt
import orjson
from tritonclient.http import InferInput
from tritonclient.utils import InferenceServerException

from utils.api.errors import InferenceFailed, InferenceTimeout, InferenceUnavailable, NotLoaded, ServiceError
from utils.triton.tensors import Tensor

logger = logging.getLogger("bentoml.mobile_sam")

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Request headers. By default the client library accepts gzip, which costs Triton 20 ms per megabyte."""

INLINE_BYTES = 64 * 1024
"""Values up to this size are sent through Triton."""
CHUNK_BYTES = 256 * 1024
"""Size of the pieces in which a large response is read and sent."""
MAX_BLOCKING_WRITE_BYTES = 1_000_000
"""Larger values are written in a thread; this many bytes take less than a millisecond."""


class Exchange:
    """The memory file of a request. As a context manager it is closed on an exception, else by the response's owner."""

    def __init__(self, deadline: float) -> None:
        """Create an empty file; the request's deadline is on the monotonic clock."""
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
        """Write the large inputs of a model to the file, unless it already has them, and return the others."""
        inline = {}
        for tensor, value in inputs.items():
            plain: Any = value[0] if tensor.datatype == "BYTES" else np.ascontiguousarray(value)
            data = memoryview(plain).cast("B")
            if data.nbytes <= INLINE_BYTES:
                inline[tensor] = value
            elif tensor.name not in self._inputs:
                if data.nbytes <= MAX_BLOCKING_WRITE_BYTES:
                    self._write(data)
                else:
                    await asyncio.to_thread(self._write, data)
                dtype = "bytes" if tensor.datatype == "BYTES" else value.dtype.str
                location = {"offset": self._size, "bytes": data.nbytes, "dtype": dtype, "shape": value.shape}
                self._inputs[tensor.name] = location
                self._size += data.nbytes
        return inline

    def describe(self, call: Mapping[str, Any]) -> npt.NDArray[np.object_]:
        """Return the value of the models' input `call`: the given members, and those about the file."""
        description = {
            **call,
            "file": f"/proc/{os.getpid()}/fd/{self._fd}",
            "inode": os.fstat(self._fd).st_ino,
            "deadline": self.deadline,
            "inputs": self._inputs,
        }
        return np.array([orjson.dumps(description)], np.object_)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes written by a model."""
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: memoryview) -> None:
        written = 0
        while written < data.nbytes:
            written += os.pwrite(self._fd, data[written:], self._size + written)


@dataclass(frozen=True)
class Spooled:
    """A response part in the file of its request."""

    exchange: Exchange
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def chunks(self) -> Iterator[bytes]:
        """Yield the part in pieces of `CHUNK_BYTES`."""
        for start in range(0, self.size, CHUNK_BYTES):
            yield self.exchange.read(self.offset + start, min(CHUNK_BYTES, self.size - start))


Content = bytes | Spooled
"""A response part, in memory or in the file of its request."""


def chunks(content: Content) -> Iterator[bytes]:
    """Yield a response part in pieces of `CHUNK_BYTES`."""
    if isinstance(content, Spooled):
        yield from content.chunks()
    else:
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]


def as_bytes(content: Content) -> bytes:
    """Return a whole response part."""
    return b"".join(chunks(content))


def infer_input(tensor: Tensor, value: npt.NDArray[Any]) -> InferInput:
    """Return a request input in Triton's binary format."""
    made = InferInput(tensor.name, list(value.shape), tensor.datatype)
    made.set_data_from_numpy(value, binary_data=True)
    return made


@contextlib.contextmanager
def service_errors(timeout: float) -> Iterator[None]:
    """Translate the exceptions of a Triton call to `ServiceError`s.

    Triton's message is only logged, because it can contain paths and addresses.

    Raises:
        InferenceUnavailable: Triton cannot be reached, or the model is not loaded.
        InferenceTimeout: no response before the timeout.
        InferenceFailed: any other error of Triton or the model.
    """
    try:
        yield
    except asyncio.TimeoutError:
        logger.error("Triton did not respond within %g s", timeout)
        raise InferenceTimeout(f"no response within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        logger.error("Triton cannot be reached: %s", error)
        raise InferenceUnavailable("the inference server is starting or restarting; retry later") from None
    except InferenceServerException as error:
        raise _from_triton(error) from None


def _from_triton(error: InferenceServerException) -> ServiceError:
    message = str(error.message())
    logger.error("Triton responded with status %s: %s", error.status(), message)
    if message.startswith("Request for unknown model"):
        return NotLoaded("the model is not loaded; retry later")
    if message.startswith("request cancelled"):  # the orchestrator found that the deadline had passed
        return InferenceTimeout("no response before the deadline")
    text = message.lower()
    if "request for unknown model" in text:
        return InferenceUnavailable("a model that this model depends on is not loaded; retry later")
    if "stub process" in text:
        return InferenceUnavailable("a process of the model died and is being restarted; retry later")
    if "not ready" in text:
        return InferenceUnavailable("the model is loading; retry later")
    if "shared memory" in text:
        return InferenceUnavailable("the server has too little shared memory for an image of this size")
    return InferenceFailed("the model could not process this request; see the server's log")
