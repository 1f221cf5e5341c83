"""Asking Triton, with what can go wrong told in the service's own errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import aiohttp
import numpy.typing as npt
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from utils.errors import (
    FieldError,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    InvalidRequest,
    NotLoaded,
    ServiceError,
)

logger = logging.getLogger("bentoml.mobile_sam")

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Left to itself the client library accepts gzip, and Triton takes 20 ms to compress each megabyte for this machine."""
REFUSAL = re.compile(r"(?:in ensemble '[^']+', )?(\w[\w.\[\]]*): expected (.+), got (.+)")
"""A model's `TritonError` with code INVALID_ARG, about what the caller sent."""


async def ask(
    runner: Any,
    model: str,
    inputs: Mapping[str, npt.NDArray[Any]],
    outputs: Sequence[str],
    timeout: float = 30,
) -> dict[str, npt.NDArray[Any]]:
    """The outputs of a model, by name.

    Args:
        runner: a `bentoml.triton.Runner` of the http type.
        model: its name.
        inputs: by name; text and files are object arrays of bytes.
        outputs: names of the outputs wanted.
        timeout: seconds that the answer may take.

    Raises:
        ServiceError: as `service_errors`.
    """
    requested = [InferRequestedOutput(name, binary_data=True) for name in outputs]
    given = [infer_input(name, np_to_triton_dtype(value.dtype), value) for name, value in inputs.items()]
    with service_errors(timeout):
        call = runner.infer(model_name=model, inputs=given, outputs=requested, headers=UNCOMPRESSED)
        answer = await asyncio.wait_for(call, timeout)
    return {name: answer.as_numpy(name) for name in outputs}


def infer_input(name: str, datatype: str, value: npt.NDArray[Any]) -> InferInput:
    """An input of a request, in Triton's binary form."""
    made = InferInput(name, list(value.shape), datatype)
    made.set_data_from_numpy(value, binary_data=True)
    return made


@contextlib.contextmanager
def service_errors(timeout: float) -> Iterator[None]:
    """Raise an error of the service in place of what a call of Triton raises.

    Triton's own text goes to the log alone: it names files and addresses.

    Args:
        timeout: seconds that the call was given, for the message.

    Raises:
        InvalidRequest: a model refused what the caller sent, as `REFUSAL` says it.
        InferenceUnavailable: Triton cannot be reached, or the model is not loaded.
        InferenceTimeout: no answer in time.
        InferenceFailed: Triton, or a model, answered with any other error.
    """
    try:
        yield
    except asyncio.TimeoutError:
        logger.error("Triton did not answer within %g s", timeout)
        raise InferenceTimeout(f"no answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        logger.error("Triton cannot be reached: %s", error)
        raise InferenceUnavailable("the inference server is starting or restarting; try again") from None
    except InferenceServerException as error:
        raise _from_triton(error) from None


def _from_triton(error: InferenceServerException) -> ServiceError:
    message = str(error.message())
    if error.status() == "400" and (refusal := REFUSAL.fullmatch(message)):
        return InvalidRequest.of([FieldError(*refusal.groups())])
    logger.error("Triton answered %s: %s", error.status(), message)
    if message.startswith("Request for unknown model"):
        return NotLoaded("the model is not loaded; try again")
    if message.startswith("not wanted"):  # by an orchestrator that has found the deadline passed
        return InferenceTimeout("no answer in time")
    text = message.lower()
    if "request for unknown model" in text:
        return InferenceUnavailable("a model that this one asks is not loaded; try again")
    if "stub process" in text:
        return InferenceUnavailable("a process of the model has died; it is being started again, try again")
    if "not ready" in text:
        return InferenceUnavailable("the model is being loaded; try again")
    if "shared memory" in text:
        return InferenceUnavailable("the server is short of shared memory for an image of this size")
    return InferenceFailed("the model could not process this request; the server's log says why")
