"""Reading of server-sent events from a decoupled Triton model, which tritonclient does not support."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import orjson
from tritonclient.utils import InferenceServerException

from utils.triton.inference import service_errors

READ_TIMEOUT_S = 300.0
"""Maximum time between events, including the time in the queue."""
DATA = b"data:"


async def texts(url: str, inputs: dict[str, Any]) -> AsyncGenerator[str, None]:
    """Yield the pieces of text that a model sends as they arrive.

    The request has its own connection. Closing the generator closes it, and Triton cancels the request.

    Args:
        url: URL of the model's `generate_stream`.
        inputs: inputs by name.

    Raises:
        ServiceError: as `service_errors`.
    """
    limits = aiohttp.ClientTimeout(total=None, sock_read=READ_TIMEOUT_S)
    with service_errors(READ_TIMEOUT_S):
        async with aiohttp.ClientSession(timeout=limits) as session, session.post(url, json=inputs) as response:
            async for line in response.content:
                event = orjson.loads(line.removeprefix(DATA)) if line.startswith((DATA, b"{")) else {}
                if "error" in event:
                    raise InferenceServerException(event["error"], status=str(response.status))
                if event:
                    yield event["text_output"]
