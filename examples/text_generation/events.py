"""What a decoupled model of Triton sends over HTTP: server-sent events, of which tritonclient knows nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import orjson
from tritonclient.utils import InferenceServerException

from utils.inference import service_errors

PATIENCE = 300.0
"""Seconds without an event, the wait for its turn included."""
DATA = b"data:"


async def texts(url: str, inputs: dict[str, Any]) -> AsyncGenerator[str, None]:
    """The texts that a model sends, as they come.

    The request has a connection of its own. When that is closed, because nobody takes the next text, Triton tells the
    model that it is cancelled.

    Args:
        url: of the model's `generate_stream`.
        inputs: by name.

    Raises:
        ServiceError: as `service_errors`.
    """
    limits = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE)
    with service_errors(PATIENCE):
        async with aiohttp.ClientSession(timeout=limits) as session, session.post(url, json=inputs) as response:
            async for line in response.content:
                event = orjson.loads(line.removeprefix(DATA)) if line.startswith((DATA, b"{")) else {}
                if "error" in event:
                    raise InferenceServerException(event["error"], status=str(response.status))
                if event:
                    yield event["text_output"]
