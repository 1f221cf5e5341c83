"""One request to the orchestrator: what to do, its inputs, its deadline, and the file that carries
large values.

The service creates a memory file for each request (memfd_create(2)), and both sides open it by its
name below /proc: the service with a `MemoryFile`, a model with a `ModelRequest`. Large values take
this way in both directions: Triton's shared memory grows with the largest value that crosses it and
never shrinks, and HTTP copies a value several times. The service closes the file when the request
ends for any reason. Its absence means that nobody waits for the answer.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from orchestrator.arrays import Array
from orchestrator.tensors import CALL, INPUT_IMAGE

INLINE_BYTES = 64 * 1024
"""Largest value that goes through Triton, in both directions."""
FILE = re.compile(r"/proc/[0-9]+/fd/[0-9]+")
MEMORY_FILE = "/memfd:mobile_sam"

Part = Sequence[Any]
"""A part of an answer in pieces, each with the buffer interface."""


class RequestCancelled(Exception):
    """Nobody waits for the answer any more; the message says why."""


@dataclass(frozen=True)
class Call:
    """What a model does with an image, in JSON in the input `call`, with members about the memory
    file.
    """

    image_id: str | None = None
    """SHA-256 of the image file. With a file, only the service's own is trusted."""
    owner: str = ""
    """Owner of the image; an image id works for its owner only."""
    caller: str = ""
    """Caller who gets the space for a new image in the cache: a key's name or an address."""
    region: Any = None
    """Part of the image to encode: x0, y0, x1, y1 or `regions.AUTO`; None: all of it."""
    scale_down: bool = False
    """True if an image above the pixel limit is to be worked on at a smaller size."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the request by the names of the HTTP API's fields."""
    accepts_costly: bool = True
    """False if the model must refuse costly requests."""

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> "Call":
        """Return the call with these members.

        Raises:
            ValueError: one of them is unknown; a misspelled owner would share images.
        """
        known = [member.name for member in fields(cls)]
        unknown = members.keys() - known
        if unknown:
            raise ValueError(f"{CALL.name}: expected {', '.join(known)}, got {min(unknown)!r}")
        return cls(**members)


@dataclass(frozen=True)
class Outcome:
    """How a request ended, in JSON in the output `outcome`: with an answer, unless one of the
    other three is set.
    """

    spooled: Sequence[int] = ()
    """Bytes of each part of the answer in the request's file, where the parts follow each other; 0:
    sent by Triton."""
    problem: dict[str, Any] | None = None
    """What the caller must correct: the fields of `problems.Rejected`."""
    unknown_image: bool = False
    """True if the image has no embedding here."""
    costly: bool = False
    """True if the request is for the model for costly ones."""
    weights: str = ""
    """Name of the weights that an answer comes from."""


class MemoryFile:
    """The service's side of a request, closed with the last part of the answer.

    As a context manager it closes only on an error: the parts of an answer still read from it.
    """

    def __init__(self, deadline: float) -> None:
        """Create an empty file; the request's deadline is on the monotonic clock."""
        self._fd = os.memfd_create("mobile_sam")
        self.deadline = deadline
        self._inputs: dict[str, dict[str, Any]] = {}
        self._size = 0

    def __enter__(self) -> "MemoryFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.close()

    def __del__(self) -> None:
        self.close()

    def put(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Write the large inputs of a model to the file, unless it already has them, and return
        the others.
        """
        inline = {}
        for name, value in inputs.items():
            size = input_bytes(value)
            if size <= INLINE_BYTES:
                inline[name] = value
            elif name not in self._inputs:
                is_bytes = value.dtype == object
                plain: Any = value[0] if is_bytes else np.ascontiguousarray(value)
                data = memoryview(plain).cast("B")
                written = 0
                while written < size:
                    written += os.pwrite(self._fd, data[written:], self._size + written)
                dtype = "bytes" if is_bytes else value.dtype.str
                self._inputs[name] = {
                    "offset": self._size,
                    "bytes": size,
                    "dtype": dtype,
                    "shape": value.shape,
                }
                self._size += size
        return inline

    def describe(self, call: Call) -> Array:
        """Return the input `call` of a model: the call's members, and those about the file."""
        description = {
            **vars(call),
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


def input_bytes(value: Array) -> int:
    """Return the size of an input: an array of numbers, or one file in an object array."""
    return len(value[0]) if value.dtype == object else value.nbytes


class ModelRequest:
    """The inputs of a request and the channel for its answer."""

    def __init__(self, tensor: Callable[[str], Array | None]) -> None:
        """Read the description of the request.

        Args:
            tensor: returns an input tensor by name, None if the request has none of that name.

        Raises:
            ValueError: the description names a file that the service cannot have made, or has an
                unknown member.
        """
        self._tensor = tensor
        description = tensor(CALL.name)
        members: dict[str, Any] = {} if description is None else orjson.loads(description[0])
        self._file, self._inode = str(members.pop("file", "")), int(members.pop("inode", 0))
        if self._file and not FILE.fullmatch(self._file):
            raise ValueError(
                f"{CALL.name}: expected a file such as /proc/1/fd/2, got {self._file[:80]!r}"
            )
        self._deadline = float(members.pop("deadline", "inf"))
        self._inputs: dict[str, dict[str, Any]] = members.pop("inputs", {})
        self.call = Call.from_members(members)

    @property
    def from_service(self) -> bool:
        """Return whether the call has a file that only the service on this machine can have made.

        Raises:
            RequestCancelled: the file is gone, or not one of the service.
        """
        if self._file:
            self._open("rb").close()
        return bool(self._file)

    def read(self, name: str) -> Array | None:
        """Return an input, None if it was left out. Text and files are object arrays of bytes."""
        location = self._inputs.get(name)
        if location is None:
            return self._tensor(name)
        with self._open("rb") as file:
            file.seek(location["offset"])
            data = file.read(location["bytes"])
        if location["dtype"] == "bytes":
            return np.array([data], np.object_)
        return np.frombuffer(data, location["dtype"]).reshape(location["shape"])

    def read_file(self) -> bytes | None:
        """Return the image file, None if it was left out."""
        array = self.read(INPUT_IMAGE.name)
        return None if array is None else bytes(array[0])

    def raise_if_cancelled(self) -> None:
        """Check that somebody still waits for the answer.

        Raises:
            RequestCancelled: the deadline has passed or the client has disconnected.
        """
        if time.monotonic() > self._deadline:
            raise RequestCancelled("the deadline has passed")
        if self._file:
            try:
                exists = os.stat(self._file).st_ino == self._inode  # noqa: PTH116  (a third of the time of Path.stat)
            except OSError:
                exists = False
            if not exists:
                raise RequestCancelled("the client has disconnected")

    def send(self, parts: Sequence[Part]) -> tuple[list[bytes], Outcome]:
        """Write the large parts of an answer to the file.

        Returns:
            The bytes of each part that go through Triton, and the outcome, which says what the file
            has.

        Raises:
            RequestCancelled: the file is gone.
        """
        sizes = [sum(memoryview(piece).nbytes for piece in part) for part in parts]
        spooled = [size if self._file and size > INLINE_BYTES else 0 for size in sizes]
        if any(spooled):
            with self._open("r+b") as file:
                file.truncate(0)  # all inputs have been read
                for part, size in zip(parts, spooled, strict=True):
                    if size:
                        file.writelines(part)
        return [
            b"" if size else b"".join(part) for part, size in zip(parts, spooled, strict=True)
        ], Outcome(spooled)

    def _open(self, mode: str) -> IO[bytes]:
        try:
            file: IO[bytes] = Path(self._file).open(mode)  # noqa: SIM115  (the callers close it)
        except OSError:
            raise RequestCancelled("the client has disconnected") from None
        # Without this check, anyone who reaches Triton could have this process write to any file.
        is_ours = os.readlink(f"/proc/self/fd/{file.fileno()}").startswith(MEMORY_FILE)  # noqa: PTH115
        if not is_ours or os.fstat(file.fileno()).st_ino != self._inode:
            file.close()
            raise RequestCancelled("the client has disconnected")
        return file
