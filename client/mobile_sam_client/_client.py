"""The client for code that waits."""

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
"""`overlay`: the objects tinted and outlined; `cutout`: RGBA, transparent outside of the objects; `none`: none."""


class Client:
    """Asks a MobileSAM service, and waits for its answers. Any number of threads may use one client.

    The first call on an image sends it, later ones name it by its id; where the service has forgotten it, it is sent
    again. A service that is busy (429, 503) or cannot be reached is asked again, after as long as it asks for (30 s at
    most), or else after 0.2 s and twice as long each time.

    All calls raise `MobileSamError`s; an image or a prompt that cannot be right raises `ValueError`, `TypeError` or
    `OSError`, and nothing is sent.

    See `ImageInput` for what an `image` may be. Coordinates are pixels of the displayed image: for files with EXIF
    orientation applied, for PIL images and arrays as their pixels are.
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
        """Make a client; nothing is sent yet.

        Args:
            url: where the service is.
            api_key: where it wants one. None: what the environment variable MOBILE_SAM_API_KEY holds; empty: none.
            timeout: seconds to wait for a connection, and for an answer to begin or go on. It does not end an upload,
                and what of one the system still holds adds up to 32 s to the wait.
            retries: how often at most a request is sent again.
            model_version: which version of the model is to answer all calls, where the service has several
                (`Info.model_versions`). None: the newest at the time.
            transport: of httpx, in place of its own; for tests, proxies and the like.

        Raises:
            ValueError: no such address, key, time or number.
        """
        times = checked_retries(retries)
        self._http = httpx.Client(**http_settings(url, api_key, timeout), transport=transport)
        self.url = str(self._http.base_url).rstrip("/")
        """Where the service is."""
        self._calls = Calls(BlockingWire(self._http), self.url, times, checked_version(model_version))

    def info(self) -> Info:
        """What the service says of itself: version, weights, engine, limits. It needs no API key."""
        return run_blocking(self._calls.info())

    def embed(self, image: ImageInput) -> Embedding:
        """Have an image encoded ahead of the first prompt; the answer stands for the image in later calls."""
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
        """Find an object by clicks, a box, or both.

        Args:
            image: to find it on.
            pos_coords: (N, 2) numbers: points, x then y, in pixels of the displayed image.
            labels: one per point of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right. None: all
                1.
            neg_coords: (N, 2) numbers: points that are not on the object.
            box: x0, y0, x1, y1 around the object.
            mask_input: (256, 256) logits: the `low_res_mask` of an earlier answer, to refine it.
            multimask_output: whether to find three candidates: the best is returned, and all are its `candidates`.
            segmented_image: the style of the picture, `overlay`, `cutout` or `none`.
            low_res_mask: whether the answer is to have a `low_res_mask`.
        """
        prompt = Prompt(pos_coords, labels, neg_coords, box, mask_input)
        return run_blocking(
            self._calls.segment(image, prompt, options_of(multimask_output, segmented_image, low_res_mask))
        )

    def segment_many(
        self,
        image: ImageInput,
        prompts: Sequence[Prompt],
        *,
        multimask_output: bool = False,
        segmented_image: PictureStyle = "none",
        low_res_mask: bool = False,
    ) -> list[Segmentation]:
        """Find several objects with one request; one result per prompt, in their order.

        A picture shows all of them, and is the same for each. The other arguments are those of `segment`; how many
        prompts the service takes at once is `Info.max_objects`.
        """
        options = options_of(multimask_output, segmented_image, low_res_mask)
        return run_blocking(self._calls.segment_many(image, prompts, options))

    def everything(
        self, image: ImageInput, *, on_progress: Callable[[int, int], None] | None = None, **parameters: float | None
    ) -> Everything:
        """Find everything on an image. It may take as long as it needs: `timeout` is for each step of it.

        Args:
            image: to search.
            on_progress: is told after each step how many steps are done, and how many there are.
            parameters: of Segment Anything's automatic mask generator, such as `points_per_side=16`; the service
                names those it knows when it gets another.
        """
        return run_blocking(self._calls.everything(image, on_progress, parameters))

    def close(self) -> None:
        """Close the connections. No call can be made after it."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"


def options_of(multimask_output: bool, segmented_image: PictureStyle, low_res_mask: bool) -> dict[str, bool | str]:
    """What is asked of an answer, as members of the request."""
    return {
        "multimask_output": multimask_output,
        "segmented_image": segmented_image,
        "low_res_mask": low_res_mask,
    }
