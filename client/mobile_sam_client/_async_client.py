"""The asyncio client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from mobile_sam_client._calls import Calls
from mobile_sam_client._client import URL, PictureStyle, request_options
from mobile_sam_client._images import ImageInput
from mobile_sam_client._prompts import Box, Labels, Points, Prompt
from mobile_sam_client._results import Embedding, Everything, Info, Segmentation
from mobile_sam_client._settings import checked_retries, checked_version, http_settings
from mobile_sam_client._wire import AsyncWire


class AsyncClient:
    """Asyncio version of `Client`, with the same calls as coroutines. It belongs to one event loop.

    Blocking work, such as encoding a PNG, runs in threads.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        model_version: int | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Create a client; nothing is sent yet. The arguments are those of `Client`."""
        max_retries = checked_retries(retries)
        self._http = httpx.AsyncClient(**http_settings(url, api_key, timeout), transport=transport)
        self.url = str(self._http.base_url).rstrip("/")
        """URL of the service."""
        self._calls = Calls(AsyncWire(self._http), self.url, max_retries, checked_version(model_version))

    async def info(self) -> Info:
        """Return the service's version, weights, engine and limits; see `Client.info`."""
        return await self._calls.info()

    async def embed(self, image: ImageInput) -> Embedding:
        """Encode an image ahead of the first prompt; see `Client.embed`."""
        return await self._calls.embed(image)

    async def segment(
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
        """Segment an object given by points, a box, or both; see `Client.segment`."""
        prompt = Prompt(pos_coords, labels, neg_coords, box, mask_input)
        return await self._calls.segment(
            image, prompt, request_options(multimask_output, segmented_image, low_res_mask)
        )

    async def segment_many(
        self,
        image: ImageInput,
        prompts: Sequence[Prompt],
        *,
        multimask_output: bool = False,
        segmented_image: PictureStyle = "none",
        low_res_mask: bool = False,
    ) -> list[Segmentation]:
        """Segment several objects in one request; see `Client.segment_many`."""
        options = request_options(multimask_output, segmented_image, low_res_mask)
        return await self._calls.segment_many(image, prompts, options)

    async def everything(
        self, image: ImageInput, *, on_progress: Callable[[int, int], None] | None = None, **parameters: float | None
    ) -> Everything:
        """Segment everything in an image; see `Client.everything`."""
        return await self._calls.everything(image, on_progress, parameters)

    async def aclose(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"
