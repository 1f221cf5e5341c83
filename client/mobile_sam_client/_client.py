"""The blocking client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

import httpx
import numpy as np
import numpy.typing as npt

from mobile_sam_client._calls import Calls
from mobile_sam_client._images import ImageInput
from mobile_sam_client._prompts import Box, Labels, Points, Prompt
from mobile_sam_client._results import Embedding, Everything, Info, Segmentation
from mobile_sam_client._settings import checked_retries, checked_version, http_settings
from mobile_sam_client._wire import BlockingWire, run_blocking

URL = "http://127.0.0.1:3000"
PictureStyle = Literal["overlay", "cutout", "none"]
"""`overlay`: objects tinted and outlined; `cutout`: RGBA, transparent outside the objects; `none`: no picture."""


class Client:
    """Blocking client of a MobileSAM service. It is thread-safe.

    The first call on an image uploads it; later calls send only its id. The client uploads the image again if the
    service no longer has it. While the service is busy (429, 503) or unreachable, requests are retried after the time
    given by `Retry-After` (at most 30 s), or with exponential backoff from 0.2 s.

    Calls raise `MobileSamError`. Invalid arguments raise `ValueError`, `TypeError` or `OSError`, and nothing is sent.

    See `ImageInput` for the accepted images. Coordinates are pixels of the displayed image: EXIF orientation is applied
    to files, but not to PIL images and arrays.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        model_version: int | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Create a client; nothing is sent yet.

        Args:
            url: URL of the service.
            api_key: API key. None: the environment variable MOBILE_SAM_API_KEY; empty: no key.
            timeout: seconds to wait for a connection, for an answer to begin, and between its parts. It does not limit
                uploads; after a large upload the wait is up to 32 s longer.
            retries: maximum number of retries per request.
            model_version: version of the model for all calls, one of `Info.model_versions`. None: the newest.
            transport: httpx transport, for tests or proxies.

        Raises:
            ValueError: an argument is invalid.
        """
        max_retries = checked_retries(retries)
        self._http = httpx.Client(**http_settings(url, api_key, timeout), transport=transport)
        self.url = str(self._http.base_url).rstrip("/")
        """URL of the service."""
        self._calls = Calls(BlockingWire(self._http), self.url, max_retries, checked_version(model_version))

    def info(self) -> Info:
        """Return the service's version, weights, engine and limits. Needs no API key."""
        return run_blocking(self._calls.info())

    def embed(self, image: ImageInput) -> Embedding:
        """Encode an image ahead of the first prompt. Pass the result as `image` to later calls."""
        return run_blocking(self._calls.embed(image))

    def segment(
        self,
        image: ImageInput,
        *,
        pos_coords: Points | None = None,
        labels: Labels | None = None,
        neg_coords: Points | None = None,
        box: Box | None = None,
        mask_input: npt.NDArray[np.floating[Any]] | None = None,
        multimask_output: bool = False,
        segmented_image: PictureStyle = "overlay",
        low_res_mask: bool = False,
    ) -> Segmentation:
        """Segment an object given by points, a box, or both.

        Args:
            image: the image.
            pos_coords: (N, 2) points, x then y, in pixels of the displayed image.
            labels: (N,) labels of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right; default 1.
            neg_coords: (N, 2) points outside the object.
            box: x0, y0, x1, y1 around the object.
            mask_input: (256, 256) logits, the `low_res_mask` of an earlier result, to refine it.
            multimask_output: True to compute three candidate masks; the best is returned, with all in `candidates`.
            segmented_image: style of the picture, `overlay`, `cutout` or `none`.
            low_res_mask: True to return the mask's logits as `low_res_mask`.
        """
        prompt = Prompt(pos_coords, labels, neg_coords, box, mask_input)
        options = request_options(multimask_output, segmented_image, low_res_mask)
        return run_blocking(self._calls.segment(image, prompt, options))

    def segment_many(
        self,
        image: ImageInput,
        prompts: Sequence[Prompt],
        *,
        multimask_output: bool = False,
        segmented_image: PictureStyle = "none",
        low_res_mask: bool = False,
    ) -> list[Segmentation]:
        """Segment several objects in one request, with one result per prompt in the same order.

        All results share one picture of all objects. The other arguments are those of `segment`. The number of prompts
        is limited by `Info.max_objects`.
        """
        options = request_options(multimask_output, segmented_image, low_res_mask)
        return run_blocking(self._calls.segment_many(image, prompts, options))

    def everything(
        self, image: ImageInput, *, on_progress: Callable[[int, int], None] | None = None, **parameters: float | None
    ) -> Everything:
        """Segment everything in an image. `timeout` applies to each step, not to the whole call.

        Args:
            image: the image.
            on_progress: called after each step with the number of steps done and the total.
            parameters: parameters of Segment Anything's automatic mask generator, such as `points_per_side=16`. The
                service rejects unknown names and lists the known ones.
        """
        return run_blocking(self._calls.everything(image, on_progress, parameters))

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"


def request_options(multimask_output: bool, segmented_image: PictureStyle, low_res_mask: bool) -> dict[str, bool | str]:
    """Return the request fields that select the contents of the answer."""
    return {
        "multimask_output": multimask_output,
        "segmented_image": segmented_image,
        "low_res_mask": low_res_mask,
    }
