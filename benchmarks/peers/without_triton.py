"""The service without Triton: the same HTTP layer, cache and encodings, with the engines in the API
workers.

BentoML starts one process per core, as for the service. Each has one thread per core; engines and
libraries release the GIL while they compute.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bentoml
import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.engines import Array, load
from examples.bentoml_runner.predictor import REPOSITORY
from orchestrator.cache import MOBILE_SAM_SHAPES, Embedding, EmbeddingCache, Layout
from orchestrator.call import Call, ModelRequest
from orchestrator.embeddings import Embeddings
from orchestrator.images import Frame
from orchestrator.pipeline import Pipeline
from orchestrator.problems import Rejected, UnknownImage
from orchestrator.segment import segment
from orchestrator.stages import Stages
from utils.api.accept import JSON
from utils.api.answers import RawJson, RawMultipart, errors_as_problems, segmentation_response
from utils.api.inputs import image_source, to_inference_request
from utils.api.request_body import receive
from utils.api.requests import SegmentRequest
from utils.edge.admission import Admission
from utils.edge.limits import Limits
from utils.edge.stack import Access, Site, edge
from utils.errors import ServiceError
from utils.inference.request import ImageSource, InferenceRequest
from utils.inference.segmenter import AnswerParts
from utils.inference.shares import RecentCallers
from utils.inference.triton_segmenter import image_file
from utils.integrations.adapter import Adapters
from utils.observability.metrics import Counts
from utils.triton.health import Health

ENCODER, DECODER, CACHE = "BENCHMARK_ENCODER", "BENCHMARK_DECODER", "BENCHMARK_EMBEDDING_CACHE_DIR"
"""Environment variables with the engines and the folder of the embeddings."""
CORES = os.cpu_count() or 1
MAX_PIXELS = 25_000_000
CACHE_BYTES, MAX_ANSWER_BYTES = 2**31, 160 * 2**20
DECODER_BATCH = 8


class InProcessSegmenter:
    """Segmenter that runs encoder and decoder in this process."""

    def __init__(self) -> None:
        repository = Path(os.environ[REPOSITORY])
        self._encoder = load(repository, "encoder", os.environ[ENCODER])
        self._decoder = load(repository, "decoder", os.environ[DECODER])
        self._identity = orjson.loads(
            (repository / "mobile_sam" / "1" / "weights.json").read_bytes()
        )
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(CORES, initializer=self._make_pipeline)

    async def segment(self, image: ImageSource, job: InferenceRequest) -> AnswerParts:
        """Segment an image."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._segment, image, job
        )

    def _segment(self, image: ImageSource, job: InferenceRequest) -> AnswerParts:
        inputs = {**image_file(image), **job.inputs}
        call = Call(image_id=image.image_id, owner=image.owner, options=job.options)
        inputs["call"] = np.array([orjson.dumps(call)], np.object_)
        request, pipeline = ModelRequest(inputs.get), self._own.pipeline
        pipeline.stages.begin(request.raise_if_cancelled, counts=False)
        try:
            mask, picture, result = (b"".join(part) for part in segment(pipeline, request))
        except (Rejected, UnknownImage) as error:
            raise ServiceError(str(error)) from None
        return AnswerParts(mask, picture or None, result)

    def _encode(self, frame: Frame) -> Embedding:
        inputs: dict[str, Array] = {
            "images": frame.pixels[None],
            "sizes_hw": np.array([frame.size_hw], np.int32),
        }
        names = list(MOBILE_SAM_SHAPES)
        return dict(zip(names, self._encoder(names, inputs), strict=True))

    def _make_pipeline(self) -> None:
        """Make this thread's pipeline; threads share only the files of embeddings, as Triton's
        processes do.
        """
        ignore: Callable[[str], None] = lambda _: None  # noqa: E731
        cache = EmbeddingCache(
            Path(os.environ[CACHE]), Layout(self._identity["fingerprint"]), CACHE_BYTES, ignore
        )
        stages = Stages(lambda *_: None)
        self._own.pipeline = Pipeline(
            run_decoder=lambda inputs, outputs: self._decoder(outputs, inputs),
            embeddings=Embeddings(cache, None, self._encode, MAX_PIXELS, ignore, stages=stages),
            stages=stages,
            identity={
                "weights": {
                    key: self._identity[key] for key in ("name", "sha256", "trained", "note")
                },
                "engine": {"encoder": os.environ[ENCODER], "decoder": os.environ[DECODER]},
                "model_version": 1,
            },
            thresholds={},
            max_answer_bytes=MAX_ANSWER_BYTES,
            decoder_batch=DECODER_BATCH,
        )


svc = bentoml.legacy.Service("without_triton")
segmenter = InProcessSegmenter()


@svc.api(
    input=RawJson(),
    output=RawMultipart(
        mask=bentoml.io.File(), segmented_image=bentoml.io.Image(), result=bentoml.io.JSON()
    ),
    route="/mobile_sam",
)
@errors_as_problems
async def mobile_sam(request: Request) -> Response:
    """Segment objects in an image, given points or boxes; return masks and a picture."""
    received = await receive(request, SegmentRequest)
    prompts = to_inference_request(received.fields, document=received.answer_type == JSON)
    image = image_source(received.fields, received.file)
    segmentation = await segmenter.segment(image, prompts)
    return segmentation_response(segmentation, received.fields.mask_format, received.answer_type)


async def no_metrics() -> bytes:
    """Return no metrics, as there is no Triton."""
    return b""


svc.add_asgi_middleware(
    edge,
    site=Site(
        work_paths=frozenset(api.route for api in svc.apis.values()),
        file_paths=frozenset(),
        pages={},
        adapters=Adapters([], None),  # type: ignore[arg-type]
    ),
    access=Access(),
    limits=Limits(max_body_bytes=2**25, body_timeout_s=30, answer_timeout_s=lambda: 60),
    admission=Admission(max_requests=1000, bodies_bytes=2**30),
    active=RecentCallers(),
    health=lambda: Health("ready"),
    counts=Counts(),
    triton_metrics=no_metrics,
)
