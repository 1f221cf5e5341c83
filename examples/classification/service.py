"""BentoML service for an image classifier: POST /classify, run by an ensemble of three Triton models.

make example NAME=classification
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from examples import embedded
from utils.api.answers import JsonAnswer, JsonBody, errors_as_problems, json_response
from utils.api.images import IMAGE_FILE, decode_base64
from utils.api.openapi import EXAMPLE_IMAGE
from utils.api.requests import parse_body
from utils.triton.inference import infer

CLASSES = 1000


class ClassifyRequest(BaseModel):
    """An image to classify."""

    model_config = ConfigDict(extra="forbid", strict=True)

    image: Annotated[str, Field(description="base64 of a PNG, JPEG or WebP file; a `data:` URL is accepted")]
    top_k: Annotated[int, Field(ge=1, le=CLASSES, description="number of classes, best first")] = 5


EXAMPLE = {"image": EXAMPLE_IMAGE["input_image"], "top_k": 3}

# By default the folder that `prepare.py` writes to.
repository = Path(os.environ.get("MODEL_REPOSITORY") or Path(__file__).with_name("model_repository"))
triton_runner = embedded.runner(repository, grpc_port=int(os.environ.get("GRPC_PORT") or 8001))
svc = bentoml.legacy.Service("classification", runners=[triton_runner])
embedded.prepare(svc)


@svc.api(input=JsonBody(ClassifyRequest, EXAMPLE), output=JsonAnswer(), route="/classify")
@errors_as_problems
async def classify(body: bytes) -> Response:
    """Return the best classes of an image, `[{"label", "score"}, ...]`; the header X-Weights names the weights."""
    request = parse_body(body, ClassifyRequest)
    # Triton batches along the first dimension: this is a batch of one, which Triton can merge with others.
    inputs = {
        "image": np.array([[decode_base64(request.image, "image", IMAGE_FILE)]], np.object_),
        "top_k": np.array([[request.top_k]], np.int32),
    }
    found = await infer(triton_runner, "classification", inputs, ("labels", "scores", "weights"))
    pairs = zip(found["labels"][0], found["scores"][0], strict=True)
    answer = json_response(orjson.dumps([{"label": label.decode(), "score": float(score)} for label, score in pairs]))
    answer.headers["X-Weights"] = found["weights"][0, 0].decode().encode("ascii", "replace").decode()
    return answer
