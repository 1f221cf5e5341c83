"""BentoML service for a language model: POST /generate streams text while it is being generated.

make env-text; TEXT_GENERATION_MODEL=gpt2 make example NAME=text_generation
"""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import bentoml
from bentoml.exceptions import InvalidArgument, ServiceUnavailable
from tritonclient.utils import InferenceServerException

from examples import embedded
from utils.bento import triton_address

triton_runner = embedded.runner(Path(__file__).with_name("model_repository"))
svc = bentoml.legacy.Service("text_generation", runners=[triton_runner])
embedded.prepare(svc)

RESTARTING = "the language model is being started again: try again in half a minute"
EXAMPLE = bentoml.io.JSON.from_sample(
    {"text_input": "Once upon a time", "max_new_tokens": 32, "temperature": 0.7}
)


async def pieces(inputs: dict[str, Any]) -> AsyncGenerator[str, None]:
    """Yield the server-sent events of Triton's `generate_stream`, which tritonclient does not
    support.

    Closing the generator closes the connection, and Triton cancels the request.

    Raises:
        InvalidArgument: the model refused the inputs.
        ServiceUnavailable: Triton or the model's process is being started again.
    """
    url = f"http://{triton_address(triton_runner.name)}/v2/models/text_generation_stream/generate_stream"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(url, json=inputs) as response,
    ):
        if response.status == 400:
            message = (await response.text()).removeprefix("data: ").strip()
            # The watchdog restarts Triton after this error, which Triton sends with the same
            # status.
            raise (
                ServiceUnavailable(RESTARTING)
                if "is not healthy" in message
                else InvalidArgument(message)
            )
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data:"):
                event = json.loads(line.removeprefix(b"data:"))
                if "error" in event:
                    raise InferenceServerException(event["error"])
                yield event["text_output"]


@svc.api(input=EXAMPLE, output=bentoml.io.Text())
async def generate(inputs: dict[str, Any]) -> AsyncGenerator[str, None]:
    """Continue a text. Closing the connection stops the generation."""
    if not isinstance(inputs, dict) or not isinstance(inputs.get("text_input"), str):
        raise InvalidArgument("expected a JSON object with a text_input")
    stream = pieces(inputs)
    try:
        first = await anext(stream, "")  # an error is raised here, before the answer begins
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        raise ServiceUnavailable(RESTARTING) from error

    async def text() -> AsyncGenerator[str, None]:
        yield first
        async for piece in stream:
            yield piece

    return text()
