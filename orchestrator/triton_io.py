"""The boundary to Triton: tensors of a request, responses, metrics, and calls of the encoder and the decoder (BLS)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils  # exists inside Triton only

from orchestrator import images, prompts
from orchestrator.cache import EmbeddingCache
from orchestrator.call import Call, Part, RequestCancelled
from orchestrator.embeddings import Embeddings, EncodedImage
from orchestrator.masks import release_logits
from orchestrator.memory import IdleMemoryRelease, return_large_blocks_on_free
from orchestrator.problems import Rejected, one_line
from orchestrator.redis_tier import RedisTier
from orchestrator.stages import DECODER, Stages
from orchestrator.warm_up import warm_up

Array = npt.NDArray[Any]

Step = TypeVar("Step")

SINGLE, CANDIDATES = slice(0, 1), slice(1, 4)
"""The decoder's outputs for unambiguous and for ambiguous prompts."""
PROBE = "probe"
"""Request id of health checks, which the metrics do not count."""
BACKGROUND_NICE = 10
"""Niceness of the models for slow requests: they return memory at once, and use smaller batches to favour clicks."""
ENVIRONMENT_PREFIX = "MOBILE_SAM_"
PARAMETERS = (
    "max_image_pixels",
    "max_answer_bytes",
    "decoder_batch",
    "embedding_cache_dir",
    "embedding_cache_bytes",
    "redis_url",
)


class Models:
    """Common part of the orchestrator's models: settings, weights, embeddings, encoder and decoder."""

    def __init__(self, args: dict[str, str]) -> None:
        """Read the settings and the identity of the weights.

        Args:
            args: arguments that Triton passes to `initialize`.

        Raises:
            TritonModelException: a setting is not valid, or the weights are missing.
        """
        warnings.simplefilter("ignore")  # Pillow's about callers' files would fill the log
        self.version = int(args["model_version"])
        """Version of this model, and of the encoder and decoder that it calls."""
        config = json.loads(args["model_config"])["parameters"]
        settings = {
            name: os.environ.get(ENVIRONMENT_PREFIX + name.upper()) or _parameter(config, name) for name in PARAMETERS
        }
        max_pixels = _whole_number("max_image_pixels", settings["max_image_pixels"], 1)
        self.max_answer_bytes = _whole_number("max_answer_bytes", settings["max_answer_bytes"], 1)
        identity = Path(args["model_repository"]) / args["model_version"] / "weights.json"
        if not identity.is_file():
            raise pb_utils.TritonModelException(f"{identity}: no such file; `make weights` writes it")
        written = json.loads(identity.read_text())
        self.weights = {key: written[key] for key in ("name", "sha256", "trained", "note")}
        self.engine = {part: _parameter(config, f"{part}_engine") for part in ("encoder", "decoder")}
        self._decoder_batch = _whole_number("decoder_batch", settings["decoder_batch"], 1)
        if nice := _whole_number("nice", _parameter(config, "nice") or "0", 0):
            os.nice(nice)
        if nice >= BACKGROUND_NICE:
            return_large_blocks_on_free()
            self._decoder_batch = max(1, self._decoder_batch // 2)
        self.thresholds: dict[str, float] = written["everything"]
        fingerprint = _fingerprint(written["fingerprint"], self.engine["encoder"])
        cache = EmbeddingCache(
            Path(os.path.expanduser(settings["embedding_cache_dir"])),  # noqa: PTH111  (no error without a home)
            fingerprint,
            _whole_number("embedding_cache_bytes", settings["embedding_cache_bytes"], 0),
            _warn,
        )
        encodes = _parameter(config, "answers") != "known images"
        try:
            url = settings["redis_url"]
            redis = RedisTier(url, fingerprint, _warn) if url and encodes else None
        except ValueError as error:
            raise pb_utils.TritonModelException(f"redis_url: {error}") from None
        self._sources = Counter(
            "mobile_sam_embeddings_total",
            "Embeddings by source: this machine's cache, Redis, the encoder",
        )
        self._cancelled = Counter(
            "mobile_sam_given_up_total",
            "Requests cancelled because the deadline passed or the client disconnected, by model",
        )
        self._stage_requests = Counter("mobile_sam_stage_total", "Requests that entered a stage, by model and stage")
        self._stage_seconds = Counter("mobile_sam_stage_seconds_total", "Seconds spent in a stage, by model and stage")
        self._name, self._counts = args["model_name"], True
        self._idle_release = IdleMemoryRelease(self._release_memory)
        self._report_loaded()
        warm_up()
        self._trace: Any = None  # trace of the request, passed on to the encoder and the decoder
        self._stages = Stages(self._count_stage)
        self.embeddings = Embeddings(
            cache,
            redis,
            self._encode if encodes else None,
            max_pixels,
            self._count_source,
            stages=self._stages,
        )

    def answer(self, request: Any, outputs: tuple[str, ...], work: Callable[[Models, Call], tuple[Part, ...]]) -> Any:
        """Return the response to a request; `work(self, call)` returns each of `outputs` in pieces.

        A request that is rejected gets a `problem` instead; other errors become Triton errors.
        """
        self._counts, self._trace = request.request_id() != PROBE, request.trace()
        problem = b""
        try:
            with self._idle_release.request() if self._counts else contextlib.nullcontext():
                call = Call(lambda name: read_tensor(request, name))
                self._stages.begin(call.raise_if_cancelled, counts=self._counts)
                parts, spooled = call.send(work(self, call))
        except Rejected as rejected:
            parts, spooled, problem = [b""] * len(outputs), [0] * len(outputs), rejected.encode()
        except RequestCancelled as error:
            self._cancelled.add(1, model=self._name)
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"request cancelled: {error}"))
        except Exception as error:
            pb_utils.Logger.log_error(one_line(f"mobile_sam: {type(error).__name__}: {error}"))
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))
        named = zip((*outputs, "problem"), (*parts, problem), strict=True)
        tensors = [pb_utils.Tensor(name, np.array([data], np.object_)) for name, data in named]
        return pb_utils.InferenceResponse([*tensors, pb_utils.Tensor("spooled", np.array(spooled, np.int64))])

    def find(
        self,
        call: Call,
        check: Callable[[tuple[int, int]], None] = lambda _: None,
        check_cost: Callable[[tuple[int, int], bool], None] = lambda *_: None,
    ) -> EncodedImage:
        """Return the image of a request with its embedding; checks as in `Embeddings.find`."""
        image_id: bytes | None = call.read_one("image_id")
        name = None if image_id is None else image_id.decode("ascii", "replace")
        owner = call.read_one("image_owner", b"").decode("ascii", "replace")
        return self.embeddings.find(call.read_one("input_image"), name, check, owner, check_cost)

    def decode(
        self,
        image: EncodedImage,
        points_xy: Array,
        labels: Array,
        mask_input: Array,
        has_mask: Array,
        *,
        candidates: bool,
    ) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
        """Run the decoder on N prompts, in batches.

        Args:
            image: the image.
            points_xy: (N, P, 2) float32, x then y, pixels of the displayed image.
            labels: (N, P) int32.
            mask_input: (M, 1, 256, 256) float32 logits, M = N or 1.
            has_mask: (M,) float32, 1 where there is an earlier mask.
            candidates: whether to return three candidates for each prompt instead of a single mask.

        Yields:
            Logits (K, 256, 256) and predicted IoU (K,) of each prompt, both float32 and finite, K = 3 or 1.

        Raises:
            TritonModelException: the decoder failed, or returned values that are not finite.
        """
        frame_hw = images.frame_size_hw(image.size_hw)
        counts = prompts.count_points(labels)
        mask_per_prompt = len(has_mask) > 1
        output = "low_res_masks" if candidates else "single_masks"

        def run(part: slice) -> list[Array]:
            points = slice(0, max(counts[part]))
            coords, decoder_labels = prompts.to_frame(
                points_xy[part, points], labels[part, points], image.size_hw, frame_hw
            )
            inputs: dict[str, Array] = {
                "image_embeddings": image.entry.embedding,
                "point_coords": coords,
                "point_labels": decoder_labels,
                "mask_input": mask_input[part] if mask_per_prompt else mask_input,
                "has_mask_input": has_mask[part] if mask_per_prompt else has_mask,
            }
            # `single_masks` is a quarter of the bytes of all masks.
            with self._stages(DECODER):
                masks, scores = self._call("mobile_sam_decoder", inputs, [output, "iou_predictions"])
            answers = [masks[:, CANDIDATES] if candidates else masks, scores[:, CANDIDATES if candidates else SINGLE]]
            if not all(np.isfinite(array).all() for array in answers):
                raise pb_utils.TritonModelException("mobile_sam_decoder: expected finite logits and scores")
            return answers

        # With candidates there are four masks per prompt; half a batch of these fits into the initial shared memory.
        max_prompts = max(1, self._decoder_batch // 2) if candidates else self._decoder_batch
        for masks, scores in prefetch(run, prompts.batches(counts, max_prompts)):
            yield from zip(masks, scores, strict=True)

    def _encode(self, frame: images.Frame) -> npt.NDArray[np.float16]:
        """Return the embedding of an image, (1, 64, 64, 256) float16."""
        inputs: dict[str, Array] = {"images": frame.pixels[None], "sizes_hw": np.array([frame.size_hw], np.int32)}
        return self._call("mobile_sam_encoder", inputs, ["image_embeddings"])[0]

    def _call(self, model: str, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
        """Run another model of this Triton.

        Raises:
            TritonModelException: it failed.
        """
        response = pb_utils.InferenceRequest(
            model_name=model,
            model_version=self.version,
            requested_output_names=outputs,
            inputs=[pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in inputs.items()],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
            trace=self._trace,
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
        return [pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in outputs]

    def close(self) -> None:
        """Release the memory that is kept for the next request."""
        self._release_memory()

    def _release_memory(self) -> None:
        self.embeddings.release_pixels()
        release_logits()

    def _report_loaded(self) -> None:
        """Export the loaded weights as a metric, from which the service makes `/info`.

        The series of an unloaded model stays: of several series of a version, the one with the highest value counts.
        """
        family = pb_utils.MetricFamily(
            "mobile_sam_loaded_timestamp_seconds",
            "Unix time at which a model last loaded these weights, by model, version, weights and engines",
            pb_utils.MetricFamily.GAUGE,
        )
        labels = {
            "model": self._name,
            "version": str(self.version),
            **{key: str(value).lower() if key == "trained" else value for key, value in self.weights.items()},
            **self.engine,
        }
        self._loaded = family, family.Metric(labels)  # keeps the series alive
        self._loaded[1].set(time.time())

    def _count_source(self, source: str) -> None:
        if self._counts:
            self._sources.add(1, source=source)

    def _count_stage(self, stage: str, requests: int, seconds: float) -> None:
        self._stage_requests.add(requests, model=self._name, stage=stage)
        self._stage_seconds.add(seconds, model=self._name, stage=stage)


class Counter:
    """A counter that Triton exports beside its own metrics."""

    def __init__(self, name: str, description: str) -> None:
        """Register the counter; a series appears with its first increment."""
        self._family = pb_utils.MetricFamily(name, description, pb_utils.MetricFamily.COUNTER)
        self._series: dict[tuple[str, ...], Any] = {}

    def add(self, amount: float, **labels: str) -> None:
        """Add to the series of these labels."""
        series = self._series.get(values := tuple(labels.values()))
        if series is None:
            series = self._series[values] = self._family.Metric(labels)
        series.increment(amount)


def prefetch(work: Callable[[Step], Any], steps: Sequence[Step]) -> Iterator[Any]:
    """Yield `work(step)` for each step; a thread works on the next step while the caller uses the result."""
    if len(steps) == 1:
        yield work(steps[0])
        return
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(work, steps[0])
        for step in steps[1:]:
            current, upcoming = upcoming, thread.submit(work, step)
            yield current.result()
        yield upcoming.result()


def read_tensor(request: Any, name: str) -> Array | None:
    """Return an input tensor of the request, None if it was left out."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    array: Array = tensor.as_numpy()
    return array


def _warn(text: str) -> None:
    pb_utils.Logger.log_warn(one_line(text))


def _fingerprint(weights: str, engine: str) -> str:
    """Return an id of the weights and the encoder's precision, on which embeddings depend; engines agree in float32."""
    return hashlib.sha256(f"{weights} {engine.rpartition(' ')[2]}".encode()).hexdigest()


def _parameter(config: dict[str, Any], name: str) -> str:
    return str(config[name]["string_value"]) if name in config else ""


def _whole_number(name: str, text: str, minimum: int) -> int:
    if not text.isdecimal() or int(text) < minimum:
        raise pb_utils.TritonModelException(f"{name}: expected a whole number of at least {minimum}, got {text!r}")
    return int(text)
