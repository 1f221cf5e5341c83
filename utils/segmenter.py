"""The call of Triton, behind a protocol, so that everything above it can be tested without Triton."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import numpy as np
import numpy.typing as npt
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from utils import tensors
from utils.errors import (
    FieldError,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    Problem,
    RejectedByModel,
    summary,
)
from utils.prompts import MaskFormat, PictureStyle, Prompt

logger = logging.getLogger("bentoml.mobile_sam")


@dataclass(frozen=True)
class Job:
    """What the model is asked: one image, one object."""

    image: bytes
    """A PNG, JPEG or WebP file."""
    prompt: Prompt
    multimask_output: bool
    mask_format: MaskFormat
    picture_style: PictureStyle


@dataclass(frozen=True)
class Segmentation:
    """What the model answers: the bodies of the answer's parts."""

    mask: bytes
    picture: bytes | None
    """A PNG file, or None where none was asked for."""
    result: bytes
    """JSON."""


class Segmenter(Protocol):
    """Something that segments images."""

    async def segment(self, job: Job) -> Segmentation:
        """Answer one job.

        Raises:
            ServiceError: the caller's image is at fault, or the model cannot answer.
        """


class TritonSegmenter:
    """Asks the `mobile_sam` model of a Triton."""

    def __init__(self, infer: Callable[..., Awaitable[Any]], timeout: float) -> None:
        """Make a segmenter.

        Args:
            infer: `InferenceServerClient.infer` of `tritonclient.http.aio`, or the runner's method of that name.
            timeout: seconds that one call may take.
        """
        self._infer = infer
        self._timeout = timeout

    async def segment(self, job: Job) -> Segmentation:
        """Answer one job.

        Raises:
            RejectedByModel: the image or a point is at fault.
            InferenceUnavailable: Triton cannot be reached, or the model is not loaded.
            InferenceTimeout: no answer in time.
            InferenceFailed: the model failed.
        """
        outputs = [InferRequestedOutput(tensor.name, binary_data=True) for tensor in tensors.OUTPUTS]
        try:
            answer = await asyncio.wait_for(
                self._infer(model_name=tensors.MODEL, inputs=_inputs(job), outputs=outputs), self._timeout
            )
        except asyncio.TimeoutError:
            logger.error("Triton did not answer within %g s", self._timeout)
            raise InferenceTimeout(f"no answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            logger.error("Triton cannot be reached: %s", error)
            raise InferenceUnavailable("the inference server is starting or restarting; try again") from None
        except InferenceServerException as error:
            raise _from_triton(error) from None
        mask, picture, result, problem = (answer.as_numpy(tensor.name)[0] for tensor in tensors.OUTPUTS)
        if problem:
            raise RejectedByModel(_problem(problem, job.prompt))
        return Segmentation(mask, picture or None, result)


def _inputs(job: Job) -> list[InferInput]:
    values = {
        tensors.INPUT_IMAGE: _bytes(job.image),
        tensors.POINT_COORDS: job.prompt.points_xy[None],
        tensors.POINT_LABELS: job.prompt.labels[None],
        tensors.MULTIMASK_OUTPUT: np.array([job.multimask_output]),
        tensors.MASK_FORMAT: _bytes(job.mask_format.encode()),
        tensors.SEGMENTED_IMAGE: _bytes(job.picture_style.encode()),
    }
    inputs = []
    for tensor, value in values.items():
        infer_input = InferInput(tensor.name, list(value.shape), tensor.datatype)
        infer_input.set_data_from_numpy(value, binary_data=True)
        inputs.append(infer_input)
    return inputs


def _bytes(data: bytes) -> npt.NDArray[np.object_]:
    return np.array([data], np.object_)


def _from_triton(error: InferenceServerException) -> InferenceFailed | InferenceUnavailable:
    """Triton's text goes to the log alone: it names files and addresses."""
    logger.error("Triton answered %s: %s", error.status(), error.message())
    text = str(error.message()).lower()
    if "not ready" in text:
        return InferenceUnavailable("the model is being loaded; try again")
    if "shared memory" in text:
        return InferenceUnavailable("the server is short of shared memory for an image of this size")
    return InferenceFailed("the model could not process this request; the server's log says why")


def _problem(document: bytes, prompt: Prompt) -> Problem:
    """The orchestrator's problem, with its points named as the caller named them."""
    fields = json.loads(document)
    names = {f"points[0][{index}]": name for index, name in enumerate(prompt.fields)}
    errors = [FieldError(names.get(e["field"], e["field"]), e["expected"], e["got"]) for e in fields["errors"]]
    return Problem(fields["status"], fields["slug"], fields["title"], summary(errors), errors)
