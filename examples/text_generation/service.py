"""BentoML service for a language model: POST /generate streams text while it is being generated.

make env-text; TEXT_GENERATION_MODEL=gpt2 make example NAME=text_generation
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import bentoml
from bentoml._internal.configuration.containers import BentoMLContainer
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from examples import embedded
from examples.text_generation.events import texts
from utils.api.answers import JsonAnswer, JsonBody, errors_as_problems, json_lines
from utils.api.requests import parse_body
from utils.edge.admission import Admission

MAX_CONCURRENT_TEXTS = 32
"""Running and queued texts per API worker; further requests get a 503 with Retry-After."""


class Request(BaseModel):
    """A text to continue. The field names are those of the inputs in Triton."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text_input: Annotated[str, Field(min_length=1, max_length=100_000)]
    max_new_tokens: Annotated[int, Field(ge=1, le=1024)] = 64
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False, description="0 for greedy decoding")] = 1.0
    seed: Annotated[
        int | None, Field(ge=0, le=2**32 - 1, description="the same seed gives the same text; default: random")
    ] = None


EXAMPLE = {"text_input": "Once upon a time", "max_new_tokens": 32, "temperature": 0.7, "seed": 1}

repository = Path(os.environ.get("MODEL_REPOSITORY") or Path(__file__).with_name("model_repository"))
triton_runner = embedded.runner(repository)
svc = bentoml.legacy.Service("text_generation", runners=[triton_runner])
embedded.prepare(svc)
admission = Admission(MAX_CONCURRENT_TEXTS, max_body_bytes=0)


@svc.on_deployment
def check() -> None:
    """Exit with one line if the language model cannot be loaded; log Triton's address."""
    script = repository / "text_generation_stream" / "1" / "text_generation_check.py"
    if subprocess.run([sys.executable, script], check=False).returncode:
        raise SystemExit(1)
    logging.getLogger("bentoml.text_generation").info("Triton's own HTTP: http://%s", triton_runner.protocol_address)


@svc.api(input=JsonBody(Request, EXAMPLE), output=JsonAnswer(), route="/generate")
@errors_as_problems
async def generate(body: bytes) -> Response:
    """Continue a text: a JSON line per piece, and `{"done": true}` in the last line."""
    request = parse_body(body, Request)
    return await json_lines(lines(request.model_dump(exclude_none=True)))


async def lines(inputs: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Yield the lines of the answer. Closing the connection stops the generation."""
    triton = BentoMLContainer.remote_runner_mapping.get()[triton_runner.name]
    with admission.slot():
        async for text in texts(f"http://{triton}/v2/models/text_generation_stream/generate_stream", inputs):
            yield {"text_output": text}
    yield {"done": True}
