"""BentoML service for two models and their ensemble: POST /ensemble, /add_sub and /mul.

make example NAME=ensemble
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
from utils.api.requests import parse_body
from utils.triton.inference import infer

Four = Annotated[list[float], Field(min_length=4, max_length=4)]


class Inputs(BaseModel):
    """Request body of all routes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input0: Four
    input1: Four


EXAMPLE = {"input0": [1, 2, 3, 4], "input1": [4, 3, 2, 1]}

# add_sub completes its configuration in `auto_complete_config`.
repository = Path(os.environ.get("MODEL_REPOSITORY") or Path(__file__).with_name("model_repository"))
triton_runner = embedded.runner(repository, auto_complete=True)
svc = bentoml.legacy.Service("ensemble", runners=[triton_runner])
embedded.prepare(svc)


async def answer(body: bytes, model: str, *outputs: str) -> Response:
    """Run a model on the inputs of a request body and return its outputs."""
    request = parse_body(body, Inputs)
    with np.errstate(over="ignore"):  # overflow gives infinity, which a step rejects
        # Triton batches along the first dimension: this is a batch of one.
        inputs = {"INPUT0": np.array([request.input0], np.float32), "INPUT1": np.array([request.input1], np.float32)}
    found = await infer(triton_runner, model, inputs, outputs)
    return json_response(orjson.dumps({name: found[name][0] for name in outputs}, option=orjson.OPT_SERIALIZE_NUMPY))


@svc.api(input=JsonBody(Inputs, EXAMPLE), output=JsonAnswer(), route="/ensemble")
@errors_as_problems
async def ensemble(body: bytes) -> Response:
    """Compute (input0 + input1) * (input0 - input1) in one request to Triton."""
    return await answer(body, "ensemble", "OUTPUT")


@svc.api(input=JsonBody(Inputs, EXAMPLE), output=JsonAnswer(), route="/add_sub")
@errors_as_problems
async def add_sub(body: bytes) -> Response:
    """Run only the first step: sum and difference."""
    return await answer(body, "add_sub", "SUM", "DIFFERENCE")


@svc.api(input=JsonBody(Inputs, EXAMPLE), output=JsonAnswer(), route="/mul")
@errors_as_problems
async def mul(body: bytes) -> Response:
    """Run only the second step: the product."""
    return await answer(body, "mul", "OUTPUT")
