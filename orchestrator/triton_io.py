"""The boundary to Triton: tensors of a request, responses, metrics, and calls of the encoder and
the decoder (BLS).
"""

import contextlib
import hashlib
import importlib
import json
import logging
import os
import time
import warnings
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson
import triton_python_backend_utils as pb_utils  # exists inside Triton only

from orchestrator import everything, images, segment, tensors
from orchestrator.arrays import Array
from orchestrator.cache import Embedding, EmbeddingCache, Layout
from orchestrator.call import ModelRequest, Outcome, Part, RequestCancelled
from orchestrator.embeddings import SOURCES, Embeddings
from orchestrator.flood_log import FloodLog
from orchestrator.masks import release_logits
from orchestrator.memory import IdleMemoryRelease, keep_free_blocks, return_large_blocks_on_free
from orchestrator.networks import encoder_inputs
from orchestrator.pipeline import Pipeline
from orchestrator.problems import CostlyRequest, Rejected, UnknownImage, one_line
from orchestrator.settings import OrchestratorSettings
from orchestrator.stages import Stage, Stages

PROBE = "probe"
"""Request id of health checks, which the metrics do not count."""
BACKGROUND_NICE = 10
"""Niceness of the models for slow requests: they return the memory of large answers at once, and
use smaller batches of a decoder that others use as well."""
PYTHON_BACKENDS = "MOBILE_SAM_PYTHON_BACKENDS"
"""Environment variable of the service: names of this Triton's backends that are
`triton_backends`."""


class TritonHandler(logging.Handler):
    """Handler that writes to Triton's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning or an error."""
        write = (
            pb_utils.Logger.log_error
            if record.levelno >= logging.ERROR
            else pb_utils.Logger.log_warn
        )
        write(one_line(record.getMessage()))


_logger = logging.getLogger("mobile_sam.triton")
_logger.addHandler(TritonHandler())
_logger.propagate = False
_LOG = FloodLog(_logger, max_lines=5, window_s=10, level=logging.ERROR)
"""Failures, which callers or an outage repeat for each request."""


class OrchestratorModel:
    """Triton's side of one process of the orchestrator, which answers one request at a time."""

    outputs: ClassVar[tuple[str, ...]]
    """Names of the tensors that `work` makes."""
    stages_of_work: ClassVar[tuple[str, ...]]
    """Stages of `work` besides the embedding's and the decoder's, exported as 0 from the start."""
    large_answers: ClassVar[bool]
    """Whether an answer may take many megabytes."""

    @staticmethod
    def work(pipeline: Pipeline, request: ModelRequest) -> tuple[Part, ...]:
        """Return each of `outputs` in pieces."""
        raise NotImplementedError

    def initialize(self, args: dict[str, str]) -> None:
        """Read the settings and the identity of the weights, and open the cache.

        Raises:
            TritonModelException: a setting is not valid, or the weights are missing.
        """
        warnings.simplefilter("ignore")  # Pillow's about callers' files would fill the log
        self._name, self._counts = args["model_name"], True
        self._trace: Any = None  # trace of the request, passed on to the encoder and the decoder
        # Arrays and tensors of the embedding of the request's image, if it has just been encoded.
        self._encoded: dict[str, tuple[Array, Any]] = {}
        parameters = read_parameters(args["model_config"])
        record = read_record(Path(args["model_repository"]) / args["model_version"])
        try:
            settings = OrchestratorSettings.from_parameters(parameters)
        except ValueError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        os.nice(settings.nice)  # before the decoder starts its threads
        is_in_background = settings.nice >= BACKGROUND_NICE
        if is_in_background and self.large_answers:
            return_large_blocks_on_free()
        else:
            keep_free_blocks()

        models = Path(args["model_repository"]).parent
        self.decoder = local_decoder(parameters, models, args)
        engine = {"encoder": settings.encoder_engine, "decoder": settings.decoder_engine}
        decoder_batch = settings.decoder_batch
        if self.decoder:
            engine["decoder"] = settings.own_decoder_engine or settings.decoder_engine
        elif is_in_background and not settings.has_gpu_networks:
            decoder_batch = max(1, decoder_batch // 2)

        descriptor = record["descriptor"]
        fingerprint = _fingerprint(record["fingerprint"], engine["encoder"])
        self._layout = Layout(fingerprint, descriptor["embedding"])
        redis = None
        if settings.redis_url and settings.encodes:
            redis = _redis_tier(settings.redis_url, self._layout)
        self._make_counters(encodes=settings.encodes, has_redis=redis is not None)
        self._idle_release = IdleMemoryRelease(self._release_memory)
        stages = Stages(self._count_stage)
        embeddings = Embeddings(
            _open_cache(settings, self._layout),
            redis,
            self._encode if settings.encodes else None,
            settings.max_image_pixels,
            self._count_source,
            stages=stages,
            preprocessing=images.Preprocessing(
                descriptor["side"], descriptor["resize"], settings.has_gpu_networks
            ),
        )
        self._pipeline = Pipeline(
            run_decoder=(self.decoder.run if self.decoder else self._decode),
            embeddings=embeddings,
            stages=stages,
            identity={
                "weights": {key: record[key] for key in ("name", "sha256", "trained", "note")},
                "engine": engine,
                "model_version": int(args["model_version"]),
            },
            thresholds=record["everything"],
            max_answer_bytes=settings.max_answer_bytes,
            decoder_batch=decoder_batch,
            accepted=descriptor["prompts"],
            makes_masks=settings.has_gpu_networks,
            mask_memory_bytes=settings.mask_memory_bytes,
            keep_embedding=getattr(self.decoder, "keep", None),
        )
        self._report_loaded(json.dumps(descriptor))

    def _make_counters(self, *, encodes: bool, has_redis: bool) -> None:
        self._sources = Counter(
            "mobile_sam_embeddings_total",
            "Embeddings by source: this machine's cache, Redis, the encoder",
            [{"source": source} for source in SOURCES],
        )
        self._cancelled = Counter(
            "mobile_sam_cancelled_total",
            "Requests cancelled because the deadline passed or the client disconnected, by model",
            [{"model": self._name}],
        )
        stage_names = [Stage.CACHE, Stage.DECODE, Stage.DECODER, *self.stages_of_work]
        if encodes:
            stage_names += [Stage.WAIT, Stage.RESIZE, Stage.ENCODE, Stage.STORE]
        if has_redis:
            stage_names.append(Stage.REDIS)
        stage_series = [{"model": self._name, "stage": stage} for stage in stage_names]
        self._stage_requests = Counter(
            "mobile_sam_stage_total",
            "Requests that entered a stage, by model and stage",
            stage_series,
        )
        self._stage_seconds = Counter(
            "mobile_sam_stage_seconds_total",
            "Seconds spent in a stage, by model and stage",
            stage_series,
        )

    def finalize(self) -> None:
        """Report that the weights are not loaded any more.

        A later load has an earlier time if the clock is set back.
        """
        self._loaded[1].set(0)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; an error of one does not affect the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Return the response to a request; errors that are no `Outcome` become Triton errors."""
        _LOG.summarise_ended()
        self._counts, self._trace = request.request_id() != PROBE, request.trace()
        self._pipeline.embeddings.refresh = not self._counts
        parts = [b""] * len(self.outputs)
        try:
            with self._idle_release.request() if self._counts else contextlib.nullcontext():
                model_request = ModelRequest(lambda name: read_tensor(request, name))
                self._pipeline.stages.begin(model_request.raise_if_cancelled, counts=self._counts)
                parts, sent = model_request.send(self.work(self._pipeline, model_request))
                outcome = replace(sent, weights=self._pipeline.identity["weights"]["name"])
        except Rejected as rejected:
            outcome = Outcome(problem=asdict(rejected))
        except UnknownImage:
            outcome = Outcome(unknown_image=True)
        except CostlyRequest:
            outcome = Outcome(costly=True)
        except RequestCancelled as error:
            self._cancelled.add(1, model=self._name)
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(f"request cancelled: {error}")
            )
        except Exception as error:
            kind = f"mobile_sam: {type(error).__name__}"
            _LOG.log(kind, f"{kind}: {error}")
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(f"{type(error).__name__}: {error}")
            )
        finally:
            self._encoded = {}
        named = zip(
            (*self.outputs, tensors.OUTCOME.name), (*parts, orjson.dumps(outcome)), strict=True
        )
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.array([data], np.object_)) for name, data in named]
        )

    def _encode(self, frame: images.Frame) -> Embedding:
        """Return the embedding of an image."""
        names = list(self._layout.shapes)
        inputs = encoder_inputs(frame.pixels, frame.size_hw, frame.box_xyxy)
        outputs = self._run(tensors.ENCODER, inputs, names)
        embedding = [output.as_numpy() for output in outputs]
        self._encoded = dict(zip(names, zip(embedding, outputs, strict=True), strict=True))
        return dict(zip(names, embedding, strict=True))

    def _decode(self, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
        """Run the decoder in Triton."""
        return [output.as_numpy() for output in self._run(tensors.DECODER, inputs, outputs)]

    def _run(self, model: str, inputs: dict[str, Array], outputs: list[str]) -> list[Any]:
        """Run another model of this Triton, and return its output tensors.

        Raises:
            TritonModelException: it failed.
        """
        response = pb_utils.InferenceRequest(
            model_name=model,
            model_version=self._pipeline.identity["model_version"],
            requested_output_names=outputs,
            inputs=[self._tensor(name, array) for name, array in inputs.items()],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
            trace=self._trace,
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
        return [pb_utils.get_output_tensor_by_name(response, name) for name in outputs]

    def _tensor(self, name: str, array: Array) -> Any:
        """Return a tensor for Triton: the encoder's own, which need not be copied, if it has this
        array.
        """
        encoded, tensor = self._encoded.get(name, (None, None))
        return tensor if array is encoded else pb_utils.Tensor(name, np.ascontiguousarray(array))

    def _release_memory(self) -> None:
        """Release the memory that is kept for the next request."""
        self._pipeline.embeddings.release_pixels()
        release_logits()

    def _report_loaded(self, descriptor: str) -> None:
        """Export the loaded weights and their descriptor as a metric, from which the service makes
        `/info`.

        The series of an unloaded model stays, with the value 0. While a model replaces another,
        both have a time: of several series of a version, the one with the highest value counts.
        """
        family = pb_utils.MetricFamily(
            "mobile_sam_loaded_timestamp_seconds",
            "Unix time at which a model last loaded these weights, by model, version, weights,"
            " descriptor and engines",
            pb_utils.MetricFamily.GAUGE,
        )
        identity = self._pipeline.identity
        weights = {**identity["weights"], "trained": str(identity["weights"]["trained"]).lower()}
        version = str(identity["model_version"])
        labels = {
            "model": self._name,
            "version": version,
            "descriptor": descriptor,
            **weights,
            **identity["engine"],
        }
        self._loaded = family, family.Metric(labels)  # keeps the series alive
        self._loaded[1].set(time.time())

    def _count_source(self, source: str) -> None:
        if self._counts:
            self._sources.add(1, source=source)

    def _count_stage(self, stage: str, requests: int, seconds: float) -> None:
        self._stage_requests.add(requests, model=self._name, stage=stage)
        self._stage_seconds.add(seconds, model=self._name, stage=stage)


class SegmentModel(OrchestratorModel):
    """Model that segments objects."""

    outputs = segment.OUTPUTS
    stages_of_work = (Stage.UPSAMPLE, Stage.MASK, Stage.PICTURE)
    large_answers = True
    work = staticmethod(segment.segment)

    def initialize(self, args: dict[str, str]) -> None:
        """Read the settings, open the cache, and warm up."""
        super().initialize(args)
        segment.warm_up(self._pipeline if self.decoder else None, self._layout.shapes)


class EverythingModel(OrchestratorModel):
    """Model that makes automatic masks."""

    outputs = everything.OUTPUTS
    stages_of_work = (Stage.UPSAMPLE, Stage.RECORD)
    large_answers = False
    work = staticmethod(everything.records)

    def initialize(self, args: dict[str, str]) -> None:
        """Read the settings, open the cache, and run the decoder if it is in this process."""
        super().initialize(args)
        if self.decoder:
            everything.warm_up(self._pipeline, self._layout.shapes)


class Counter:
    """A counter that Triton exports beside its own metrics."""

    def __init__(self, name: str, description: str, series: Iterable[dict[str, str]]) -> None:
        """Register the counter.

        The series of these labels start at 0, others appear with their first increment.
        """
        self._family = pb_utils.MetricFamily(name, description, pb_utils.MetricFamily.COUNTER)
        self._series: dict[tuple[str, ...], Any] = {}
        for labels in series:
            self.add(0, **labels)

    def add(self, amount: float, **labels: str) -> None:
        """Add to the series of these labels."""
        series = self._series.get(values := tuple(labels.values()))
        if series is None:
            series = self._series[values] = self._family.Metric(labels)
        series.increment(amount)


def read_tensor(request: Any, name: str) -> Array | None:
    """Return an input tensor of the request, None if it was left out."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    array: Array | None = None if tensor is None else tensor.as_numpy()
    return array


def local_decoder(parameters: dict[str, str], models: Path, args: dict[str, str]) -> Any:
    """Return the decoder of a version as an `Engine` in this process, None if it runs in Triton.

    It runs here if its backend, named in the parameters of this model, is one of `triton_backends`:
    the same engine in another process would be a hop away. From a bucket, Triton copies each model
    into a folder of its own, and the decoder's file is not beside this model.

    Args:
        parameters: the parameters of this model.
        models: folder of all models.
        args: what Triton says about this instance.
    """
    backend = parameters.get("decoder_backend")
    file = parameters.get("decoder_file", "model.onnx")
    path = models / tensors.DECODER / args["model_version"] / file
    if backend not in os.environ.get(PYTHON_BACKENDS, "").split() or not path.is_file():
        return None
    engine = importlib.import_module(f"triton_backends.common.{backend}_engine")
    if args["model_instance_kind"] != "GPU":
        return engine.Engine(path, parameters)
    device = engine.cuda_provider(parameters, int(args["model_instance_device_id"]))
    return engine.Engine(path, parameters, [device, engine.CPU])


def read_parameters(model_config: str) -> dict[str, str]:
    """Return the parameters in a model's configuration, which Triton gives as JSON."""
    parameters = json.loads(model_config).get("parameters", {})
    return {name: str(value["string_value"]) for name, value in parameters.items()}


def read_record(version: Path) -> dict[str, Any]:
    """Return the record of the weights in the folder of a version.

    Raises:
        TritonModelException: there is none.
    """
    file = version / "weights.json"
    if not file.is_file():
        raise pb_utils.TritonModelException(f"{file}: no such file; `make weights` writes it")
    record: dict[str, Any] = json.loads(file.read_text())
    return record


def _open_cache(settings: OrchestratorSettings, layout: Layout) -> EmbeddingCache:
    # Unlike Path.expanduser, this is no error without a home.
    folder = Path(os.path.expanduser(settings.embedding_cache_dir))  # noqa: PTH111
    return EmbeddingCache(folder, layout, settings.embedding_cache_bytes, _warn)


def _redis_tier(url: str, layout: Layout) -> Any:
    # 11 MB in each process, needed by few.
    from orchestrator.redis_tier import RedisTier  # noqa: PLC0415

    try:
        return RedisTier(url, layout, _warn)
    except ValueError as error:
        raise pb_utils.TritonModelException(f"redis_url: {error}") from None


def _warn(text: str) -> None:
    _LOG.log(text.partition(":")[0], text, level=logging.WARNING)


def _fingerprint(weights: str, engine: str) -> str:
    """Return an id of the weights and the encoder's precision, on which embeddings depend.

    Engines agree in float32.
    """
    return hashlib.sha256(f"{weights} {engine.rpartition(' ')[2]}".encode()).hexdigest()
