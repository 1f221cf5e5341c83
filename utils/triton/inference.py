"""Inputs of inference requests to Triton, and the translation of their failures to `ServiceError`s."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy.typing as npt
from tritonclient.http import InferInput
from tritonclient.utils import InferenceServerException

from utils.api.errors import InferenceFailed, InferenceTimeout, InferenceUnavailable, NotLoaded, ServiceError

logger = logging.getLogger("bentoml.mobile_sam")

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Request headers. By default the client library accepts gzip, which costs Triton 20 ms per megabyte."""


def infer_input(name: str, datatype: str, value: npt.NDArray[Any]) -> InferInput:
    """Return a request input in Triton's binary format."""
    tensor = InferInput(name, list(value.shape), datatype)
    tensor.set_data_from_numpy(value, binary_data=True)
    return tensor


@contextlib.contextmanager
def service_errors(timeout: float) -> Iterator[None]:
    """Translate the exceptions of a Triton call to `ServiceError`s.

    Triton's message is only logged, because it can contain paths and addresses.

    Args:
        timeout: the call's timeout in seconds, for the message.

    Raises:
        InferenceUnavailable: Triton cannot be reached, or the model is not loaded.
        InferenceTimeout: no response before the timeout.
        InferenceFailed: any other error of Triton or the model.
    """
    try:
        yield
    except asyncio.TimeoutError:
        logger.error("Triton did not respond within %g s", timeout)
        raise InferenceTimeout(f"no response within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        logger.error("Triton cannot be reached: %s", error)
        raise InferenceUnavailable("the inference server is starting or restarting; retry later") from None
    except InferenceServerException as error:
        raise _from_triton(error) from None


def _from_triton(error: InferenceServerException) -> ServiceError:
    message = str(error.message())
    logger.error("Triton responded with status %s: %s", error.status(), message)
    if message.startswith("Request for unknown model"):
        return NotLoaded("the model is not loaded; retry later")
    if message.startswith("request cancelled"):  # the orchestrator found that the deadline had passed
        return InferenceTimeout("no response before the deadline")
    text = message.lower()
    if "request for unknown model" in text:
        return InferenceUnavailable("a model that this model depends on is not loaded; retry later")
    if "stub process" in text:
        return InferenceUnavailable("a process of the model died and is being restarted; retry later")
    if "not ready" in text:
        return InferenceUnavailable("the model is loading; retry later")
    if "shared memory" in text:
        return InferenceUnavailable("the server has too little shared memory for an image of this size")
    return InferenceFailed("the model could not process this request; see the server's log")
