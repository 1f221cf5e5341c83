"""One request to the orchestrator: its inputs, whether its answer is still wanted, and where large values cross.

The service gives each request a memory file of its own (memfd_create(2)), which both sides open by its name below
/proc. Through it goes what is large, in both directions: Triton's shared memory grows with the largest value that
crosses it and never shrinks, and HTTP copies a value several times. The file ends with the request, so that it also
tells whether anybody still waits for the answer.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

EXCHANGE = "exchange"
"""The input that describes the file: JSON, as `utils.exchange` of the service writes it."""
INLINE_BYTES = 64 * 1024
"""Parts of an answer up to this size go through Triton."""
FILE = re.compile(r"/proc/[0-9]+/fd/[0-9]+")
MEMORY_FILE = "/memfd:mobile_sam"

Array = npt.NDArray[Any]
Part = Sequence[Any]
"""A part of an answer in pieces, each with the buffer interface."""


class NotWanted(Exception):
    """Nobody waits for the answer any more; the message says why."""


class Call:
    """The inputs of a request and the way of its answer."""

    def __init__(self, tensor: Callable[[str], Array | None]) -> None:
        """Read what the request says of itself.

        Args:
            tensor: gives an input tensor of the request by its name, None where it was left out.

        Raises:
            ValueError: the file that it names is none of the service's.
        """
        self._tensor = tensor
        described = tensor(EXCHANGE)
        told: dict[str, Any] = {} if described is None else json.loads(described[0])
        self._file, self._inode = str(told.get("file", "")), int(told.get("inode", 0))
        if self._file and not FILE.fullmatch(self._file):
            raise ValueError(f"exchange: expected a file such as /proc/1/fd/2, got {self._file[:80]!r}")
        self._deadline = float(told.get("deadline", "inf"))
        self._inputs: dict[str, dict[str, Any]] = told.get("inputs", {})
        self.light: bool = told.get("light", False)
        """Whether this process is to refuse what takes long, for another to do it."""

    def read(self, name: str) -> Array | None:
        """An input; None where it was left out. Text and files are object arrays of bytes."""
        place = self._inputs.get(name)
        if place is None:
            return self._tensor(name)
        with self._open("rb") as file:
            file.seek(place["offset"])
            data = file.read(place["bytes"])
        if place["dtype"] == "bytes":
            return np.array([data], np.object_)
        return np.frombuffer(data, place["dtype"]).reshape(place["shape"])

    def read_one(self, name: str, otherwise: Any = None) -> Any:
        """The only value of an input, `otherwise` where it was left out; text and files come as bytes."""
        array = self.read(name)
        return otherwise if array is None else array[0]

    def check_wanted(self) -> None:
        """Look whether somebody still waits for the answer.

        Raises:
            NotWanted: its time is over, or its caller has left.
        """
        if time.monotonic() > self._deadline:
            raise NotWanted("its time is over")
        if self._file:
            try:
                there = os.stat(self._file).st_ino == self._inode  # noqa: PTH116  (a third of the time of Path.stat)
            except OSError:
                there = False
            if not there:
                raise NotWanted("its caller has left")

    def send(self, parts: Sequence[Part]) -> tuple[list[bytes], list[int]]:
        """Put the large parts of an answer into the file.

        Args:
            parts: of the answer.

        Returns:
            What goes through Triton of each part, and the bytes that the file has of each, one behind the other.

        Raises:
            NotWanted: the file is gone.
        """
        sizes = [sum(memoryview(piece).nbytes for piece in part) for part in parts]
        spooled = [size if self._file and size > INLINE_BYTES else 0 for size in sizes]
        if any(spooled):
            with self._open("r+b") as file:
                file.truncate(0)  # of what came through it everything has been read
                for part, size in zip(parts, spooled, strict=True):
                    if size:
                        file.writelines(part)
        return [b"" if size else b"".join(part) for part, size in zip(parts, spooled, strict=True)], spooled

    def _open(self, mode: str) -> IO[bytes]:
        try:
            file: IO[bytes] = Path(self._file).open(mode)  # noqa: SIM115  (the callers close it)
        except OSError:
            raise NotWanted("its caller has left") from None
        # Whoever reaches Triton could else have this process write to any file.
        is_ours = os.readlink(f"/proc/self/fd/{file.fileno()}").startswith(MEMORY_FILE)  # noqa: PTH115
        if not is_ours or os.fstat(file.fileno()).st_ino != self._inode:
            file.close()
            raise NotWanted("its caller has left")
        return file
