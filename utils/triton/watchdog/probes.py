"""Inferences in the local Triton that show whether it works, and its counters."""

import base64
import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.http import InferenceServerClient, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from orchestrator import tensors
from orchestrator.call import Call
from orchestrator.networks import MaskRule, decoder_inputs, encoder_inputs
from utils.triton import health
from utils.triton.inputs import infer_input
from utils.triton.versions import LOAD_ORDER

NO_OBJECT = -1024
"""Logits of SAM 2's masks where it sees no object."""
REQUEST_ID = "probe"
"""Triton request id of probes: the orchestrator leaves them out of its metrics, and encodes their
image again."""
ENCODE_US = re.compile(
    rf'^nv_inference_compute_infer_duration_us\{{[^}}]*\bmodel="{tensors.ENCODER}"[^}}]*\}} (\d+)',
    re.MULTILINE,
)
SUCCESSES = re.compile(
    r'^nv_inference_request_success\{[^}]*\bmodel="([^"]+)"[^}]*\} (\d+)', re.MULTILINE
)
LOADED = re.compile(
    rf'^mobile_sam_loaded_timestamp_seconds.*\bmodel="{tensors.SEGMENT}".*', re.MULTILINE
)
SIDE = re.compile(r'\\"side\\": (\d+)')
"""Member of the descriptor, which is a label's value."""
ENGINE = re.compile(r'\b(encoder|decoder)="([^"]+)"')

# A grey PNG of 8 x 8 pixels.
IMAGE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAEElEQVR4nGNsYIAAJgaKGAAmCACQXTClHgAAAABJRU5ErkJggg=="
)
CALL = Call(image_id=hashlib.sha256(IMAGE).hexdigest(), options={"mask_format": "rle"})

Values = Mapping[str, npt.NDArray[Any]]


class ProbeError(Exception):
    """Triton answered a probe with an error."""


class NotLoadedError(ProbeError):
    """Models that are not loaded yet, or that an operator has unloaded."""


class OutOfMemoryError(ProbeError):
    """The GPU has too little free memory, which a restart would not change."""


class FaultError(ProbeError):
    """Triton took a model's process for dead."""


class EngineError(ProbeError):
    """The encoder or the decoder computes something that cannot be right."""


@dataclass(frozen=True)
class Counts:
    """Triton's counters of successful requests, by callers and by probes."""

    successes: Counter[str] = field(default_factory=Counter)
    """Number of requests by model."""
    encode_s: float = 0.0
    """Seconds that the encoder ran for them, without its queue."""


@dataclass(frozen=True)
class LocalTriton:
    """Triton on this machine.

    Methods raise `ProbeError` if it answers with an error, and other exceptions if there is no
    valid answer in time.
    """

    port: int
    """Port of its HTTP."""
    key_header: Mapping[str, str] = field(default_factory=dict)
    """Header with the key of its restricted APIs."""
    metrics_port: int = 0

    def infer(
        self,
        model: str,
        inputs: Values,
        outputs: list[str],
        timeout_s: float,
        version: int | None = None,
    ) -> Values:
        """Run a model, by default its newest version, and return the outputs."""
        infer_inputs = [infer_input(name, value) for name, value in inputs.items()]
        infer_outputs = [InferRequestedOutput(name) for name in outputs]
        headers = dict(self.key_header)
        with self._client(timeout_s) as client:
            try:
                result = client.infer(
                    model,
                    infer_inputs,
                    str(version or ""),
                    infer_outputs,
                    REQUEST_ID,
                    headers=headers,
                )
            except InferenceServerException as error:
                unloaded = [name for name in LOAD_ORDER if not client.is_model_ready(name)]
                if unloaded:
                    raise NotLoadedError(f"{', '.join(unloaded)} is not loaded") from None
                kind: type[ProbeError] = ProbeError
                if health.is_stub_failure(str(error)):
                    kind = FaultError
                elif health.is_out_of_memory(str(error)):
                    kind = OutOfMemoryError
                raise kind(f"{model}: {str(error)[:200]}") from None
            return {name: result.as_numpy(name) for name in outputs}

    def tensors(
        self, model: str, timeout_s: float, version: int | None = None
    ) -> dict[str, list[int]]:
        """Return the shape of each input and output of a model, by name."""
        with self._client(timeout_s) as client:
            headers = dict(self.key_header)
            metadata = client.get_model_metadata(model, str(version or ""), headers=headers)
        described = *metadata["inputs"], *metadata["outputs"]
        return {tensor["name"]: tensor["shape"] for tensor in described}

    def check_ready(self, timeout_s: float) -> None:
        """Check that the server and all its models are ready."""
        with self._client(timeout_s) as client:
            if not client.is_server_ready():
                raise ProbeError("it is not ready")

    def version(self, timeout_s: float) -> str:
        """Return the version, such as 2.51.0."""
        with self._client(timeout_s) as client:
            return str(client.get_server_metadata()["version"])

    def counts(self, timeout_s: float) -> Counts:
        """Return the counters of requests since the models were loaded."""
        metrics = self._metrics(timeout_s)
        successes: Counter[str] = Counter()
        for model, count in SUCCESSES.findall(metrics):
            successes[model] += int(count)  # over versions
        return Counts(successes, sum(map(int, ENCODE_US.findall(metrics))) / 1e6)

    def engines(self, timeout_s: float) -> str:
        """Return the engines of encoder and decoder."""
        loaded = "".join(LOADED.findall(self._metrics(timeout_s)))
        return ", ".join(sorted({f"{part} {engine}" for part, engine in ENGINE.findall(loaded)}))

    def frame_side(self, timeout_s: float) -> int:
        """Return the side of the encoder's frame in pixels, which all versions share."""
        side = SIDE.search("".join(LOADED.findall(self._metrics(timeout_s))))
        if not side:
            raise NotLoadedError(f"{tensors.SEGMENT} is not loaded")
        return int(side[1])

    def _metrics(self, timeout_s: float) -> str:
        connection = HTTPConnection("127.0.0.1", self.metrics_port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    @contextlib.contextmanager
    def _client(self, timeout_s: float) -> Iterator[InferenceServerClient]:
        address = f"127.0.0.1:{self.port}"
        client = InferenceServerClient(
            address, connection_timeout=timeout_s, network_timeout=timeout_s
        )
        with contextlib.closing(client):
            yield client


def click(triton: LocalTriton, model: str, timeout_s: float) -> None:
    """Draw a box on the probes' image, sent with its file to the model for new images only.

    Raise as `LocalTriton`.

    All weights accept a box. Without the embedding cache, the model for cached images answers that
    it does not know this one.
    """
    inputs = {
        tensors.CALL.name: np.array([json.dumps(vars(CALL)).encode()], np.object_),
        tensors.POINTS_XY.name: np.array([[[2, 2], [6, 6]]], np.float32),
        tensors.LABELS.name: np.array([[tensors.BOX_TOP_LEFT, tensors.BOX_BOTTOM_RIGHT]], np.int32),
    }
    if model == tensors.SEGMENT:
        inputs[tensors.INPUT_IMAGE.name] = np.array([IMAGE], np.object_)
    outcome = triton.infer(model, inputs, [tensors.OUTCOME.name], timeout_s)[tensors.OUTCOME.name]
    if problem := json.loads(outcome[0]).get("problem"):
        raise ProbeError(f"{model}: {json.dumps(problem)[:200]}")


def check_engines(triton: LocalTriton, timeout_s: float, version: int | None = None) -> None:
    """Check that two images have different embeddings, and that a box around a white square has a
    mask.

    An engine that runs without an error may still be wrong: a half-precision build has been seen to
    give the same embedding for every image.

    Args:
        triton: the server.
        timeout_s: time for each of the three inferences and the request for the tensors.
        version: version of the models; default: the newest.

    Raises:
        EngineError: they do not.
        Exception: as `LocalTriton`.
    """
    shapes = triton.tensors(tensors.ENCODER, timeout_s, version)
    inputs = {tensor.name for tensor in (*tensors.ENCODER_INPUTS, *tensors.GPU_ENCODER_INPUTS)}
    parts = [name for name in shapes if name not in inputs]
    on_gpu = tensors.PIXELS.name in shapes
    side = triton.frame_side(timeout_s) if on_gpu else shapes[tensors.IMAGES.name][1]

    def encode(pixels: npt.NDArray[np.uint8]) -> Values:
        box_xyxy = (0, 0, side, side) if on_gpu else None
        images = encoder_inputs(pixels, (side, side), box_xyxy)
        return triton.infer(tensors.ENCODER, images, parts, timeout_s, version)

    black = np.zeros((side, side, 3), np.uint8)
    with_square = black.copy()
    with_square[side // 4 : -side // 4, side // 4 : -side // 4] = 255
    of_black, embedding = encode(black), encode(with_square)
    if all(np.array_equal(of_black[name], embedding[name]) for name in parts):
        raise EngineError(f"{tensors.ENCODER} returned the same embedding for two different images")
    # Two points: the shapes of Triton's warm-up, for which the decoder always stays prepared.
    near, far = tensors.FRAME_SIDE // 4, tensors.FRAME_SIDE * 3 // 4
    corners_xy = np.array([[[near, near], [far, far]]], np.float32)
    labels = np.array([[tensors.BOX_TOP_LEFT, tensors.BOX_BOTTOM_RIGHT]], np.int32)
    frame_hw = tensors.FRAME_SIDE, tensors.FRAME_SIDE
    prompt = decoder_inputs(embedding, corners_xy, labels, size_hw=frame_hw, frame_hw=frame_hw)
    output = tensors.LOW_RES_MASKS.name
    if on_gpu:
        output = tensors.MASK_LOGITS.name
        prompt |= MaskRule(slice(0, 1 + tensors.CANDIDATES)).inputs()
    masks = triton.infer(tensors.DECODER, prompt, [output], timeout_s, version)[output]
    if not (masks > 0).any() and not (masks == NO_OBJECT).all():
        raise EngineError(f"{tensors.DECODER} returned no mask for a box around a white square")
