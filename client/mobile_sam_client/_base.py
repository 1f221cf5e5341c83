"""Base of both clients: settings, retries, and requests about an image."""

from __future__ import annotations

import functools
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import httpx

from mobile_sam_client import _answers
from mobile_sam_client._errors import ImageNotCached, ServiceUnreachable
from mobile_sam_client._image_ids import ImageIds
from mobile_sam_client._images import ImageFile, ImageInput, displayed_pixels, hashed, load_source
from mobile_sam_client._prompts import Region, region_field, request_body
from mobile_sam_client._results import Embedding, ImageResult, Segmentation
from mobile_sam_client._scaling import Scaling
from mobile_sam_client._service_info import Info
from mobile_sam_client._settings import (
    MAX_CONNECTIONS,
    check_integer,
    check_timeout,
    checked_key,
    checked_url,
)
from mobile_sam_client._wire import Wire

if TYPE_CHECKING:
    from mobile_sam_client._local_decoding import LocalDecoding

logger = logging.getLogger("mobile_sam_client")

MIN_WRITE_TIMEOUT_S = 60.0
"""Minimum time to send each 64 KiB of a request: `timeout` is meant for answers and must not abort
a slow upload."""
MAX_CONNECT_TIMEOUT_S = 60.0
RETRYABLE_STATUSES = (429, 503)
"""Statuses worth retrying. Not 504: the server has already done the work once."""
MAX_RETRY_WAIT_S = 30.0
"""Upper bound, also for the wait that the service asks for."""
FIRST_RETRY_WAIT_S = 0.2
"""Longest wait before the first retry without `Retry-After`; doubled for each further retry."""

T = TypeVar("T")
Result = TypeVar("Result", bound=ImageResult)


class BaseClient:
    """Base of `Client` and `AsyncClient`: settings, retries, and the ids of known images."""

    _http_type: ClassVar[type[httpx.Client] | type[httpx.AsyncClient]]
    _http: httpx.Client | httpx.AsyncClient

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 300.0,
        retries: int = 5,
        model_version: int | None = None,
        max_side: int | None = None,
        local: bool = False,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | bool = True,
        proxy: str | httpx.Proxy | None = None,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Create a client; nothing is sent yet.

        Args:
            url: URL of the service, or `host:port`. None: the environment variable MOBILE_SAM_URL,
                or else http://127.0.0.1:3000.
            api_key: API key. None: the environment variable MOBILE_SAM_API_KEY; empty: no key.
            timeout: seconds to wait for a connection (60 at most), for an answer to begin, and
                between its parts. It does not limit uploads; after a large upload the wait is up to
                32 s longer.
            retries: maximum number of retries per request.
            model_version: version of the model for all calls, one of `Info.model_versions`. None:
                the newest.
            max_side: longest side in pixels of the images that are sent. Larger ones are scaled
                down and sent as JPEG; prompts, masks and boxes are those of the whole image, only
                `Segmentation.image` has the size that was sent. None: no limit.
            local: True to decode masks in this process, which needs the extra `local`. The service
                encodes the images, and answers what is not done here: pictures, regions "auto",
                invalid requests.
            headers: further headers of all requests, such as those that a gateway asks for.
            verify: False not to verify the service's certificate, or a context that verifies it,
                such as `ssl.create_default_context(cafile="ca.pem")`.
            proxy: URL of a proxy. None: the environment variables HTTP_PROXY, HTTPS_PROXY,
                ALL_PROXY and NO_PROXY.
            transport: httpx transport, for tests.

        Raises:
            ValueError: an argument is invalid.
            ImportError: the packages of the extra `local` are not installed.
        """
        check_timeout(timeout)
        check_integer("retries", retries, 0)
        if model_version is not None:
            check_integer("model_version", model_version, 1, ", or None")
        if max_side is not None:
            check_integer("max_side", max_side, 1, ", or None")
        all_headers = httpx.Headers(headers)
        key = checked_key(api_key)
        if key:
            # httpx does not print the value of this header.
            all_headers["Authorization"] = f"Bearer {key}"
        network: dict[str, Any] = {"verify": verify, "proxy": proxy, "transport": transport}
        self._http = self._http_type(
            base_url=checked_url(url),
            headers=all_headers,
            # No limit on the wait for a free connection: this client's own requests use them all.
            timeout=httpx.Timeout(
                timeout,
                connect=min(timeout, MAX_CONNECT_TIMEOUT_S),
                write=max(timeout, MIN_WRITE_TIMEOUT_S),
                pool=None,
            ),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            **network,
        )
        self.url: str = str(self._http.base_url).rstrip("/")
        """URL of the service."""
        self._wire: Wire = Wire(self._http)
        self._retries: int = retries
        self.model_version: int | None = None if model_version is None else int(model_version)
        """Version of the model for all calls; None: the newest."""
        self._max_side: int | None = max_side
        self._image_ids = ImageIds()
        self._local: LocalDecoding | None = None
        if local:
            from mobile_sam_client._local_decoding import (  # noqa: PLC0415 (optional packages)
                LocalDecoding,
            )

            self._local = LocalDecoding(self)

    __init__.__qualname__ = "Client"  # Python's errors about arguments have it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def _parse(self, parser: Callable[..., T], *arguments: Any) -> T:
        """Parse an answer; malformed ones raise `NotThisService`."""
        checked_parser = _answers.expect_valid_answer(self.url)(parser)
        return await self._wire.run(checked_parser, *arguments)

    async def _info(self) -> Info:
        response = await self._send("GET", "/info")
        return await self._parse(_answers.parse_info, await self._wire.read(response))

    async def _embed(self, image: ImageInput, region: Region | None) -> Embedding:
        async def read(response: httpx.Response, source: ImageFile) -> list[Embedding]:
            body = await self._wire.read(response)
            return [await self._parse(_answers.parse_embedding, body, source.file)]

        (embedding,) = await self._ask("/embed", image, {"region": region}, read)
        return embedding

    async def _segment(self, image: ImageInput, count: int, **fields: Any) -> list[Segmentation]:
        """Return the best mask of each of `count` objects."""
        load_pixels = functools.partial(displayed_pixels, image)
        if self._local:
            masks = await self._local.segment(image, fields, load_pixels)
            if masks is not None:
                return masks

        async def read(response: httpx.Response, _: ImageFile) -> list[Segmentation]:
            content_type = response.headers.get("Content-Type", "")
            body = await self._wire.read(response)
            return await self._parse(
                _answers.parse_segmentations, content_type, body, count, load_pixels
            )

        return await self._ask("/mobile_sam", image, {**fields, "mask_format": "rle"}, read)

    async def _ask(
        self,
        path: str,
        image: ImageInput,
        fields: Mapping[str, Any],
        read: Callable[[httpx.Response, ImageFile], Awaitable[list[Result]]],
    ) -> list[Result]:
        """Send a request about an image: by its id if the service should have it, else by its file.

        Args:
            path: URL path.
            image: the image.
            fields: the other fields of the request; those that are None are left out.
            read: reads at least one result from the response.
        """
        source, scaling = await self._source(image)
        fields = self._fields_to_send(fields, scaling)
        results: list[Result] | None = None
        image_id = source.image_id or self._image_ids.find(source.sha256)
        if image_id is not None:
            try:
                body = request_body(image_id, fields)
                results = await read(await self._send("POST", path, body, image_id), source)
            except ImageNotCached:
                logger.info(
                    "image %s is no longer cached by the service: sending it again", image_id
                )
        if results is None:
            sent = await self._file_to_send(source, scaling)
            body = await self._wire.run(request_body, sent.file, fields)
            results = await read(await self._send("POST", path, body, sent.sha256), source)
            if source.sha256:
                self._image_ids.remember(source.sha256, results[0].image_id)
        if scaling is None:
            return results
        return [await self._wire.run(scaling.displayed, result) for result in results]

    def _fields_to_send(
        self, given: Mapping[str, Any], scaling: Scaling | None
    ) -> Mapping[str, Any]:
        """Return the fields of a request without the image. Raises `ValueError`."""
        all_fields = {"model_version": self.model_version, **given}
        fields = {name: value for name, value in all_fields.items() if value is not None}
        if "region" in fields:
            fields["region"] = region_field(fields["region"])
        return fields if scaling is None else scaling.fields_to_send(fields)

    async def _source(self, image: ImageInput) -> tuple[ImageFile, Scaling | None]:
        """Return the file of an image, and how it is scaled down, or None."""
        source = await self._wire.run(load_source, image)
        return source, await self._wire.run(self._scaling, image, source.file)

    async def _file_to_send(self, source: ImageFile, scaling: Scaling | None) -> ImageFile:
        if scaling is not None:
            smaller = await self._wire.run(scaling.scaled_file, source.file)
            return await self._wire.run(hashed, smaller)
        if source.sha256:
            return source
        return await self._wire.run(hashed, source.file)

    def _scaling(self, image: ImageInput, file: bytes) -> Scaling | None:
        """Return how an image is scaled down, or None. Raises `ValueError`."""
        if isinstance(image, Embedding):  # stays as it was sent
            if image.sent_wh is None:
                return None
            return Scaling((image.width, image.height), image.sent_wh, image.orientation)
        return None if self._max_side is None else Scaling.of_file(file, self._max_side)

    async def _send(
        self, method: str, path: str, body: bytes | None = None, image_id: str | None = None
    ) -> httpx.Response:
        """Send a request, retrying while the service is busy or unreachable.

        It returns when a response begins. Load balancers route by `image_id`, the SHA-256 of the
        file that the request is about.
        """
        for attempt in range(self._retries + 1):
            retry_after: float | None = None
            try:
                response = await self._wire.send(method, path, body, image_id)
                if response.is_success:
                    return response
                content = await self._wire.read(response)
                error = _answers.error_from_response(response, content, self.url + path)
                if response.status_code not in RETRYABLE_STATUSES:
                    raise error
                retry_after = _answers.parse_retry_after(response.headers.get("Retry-After"))
            except ServiceUnreachable as unreachable:
                error = unreachable
            if attempt == self._retries:
                raise error
            seconds = _retry_wait_s(attempt, retry_after)
            logger.info(
                "retrying in %.1f s (%d of %d): %s", seconds, attempt + 1, self._retries, error
            )
            await self._wire.sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _retry_wait_s(attempt: int, retry_after: float | None) -> float:
    """Return the seconds to wait after an attempt, counted from 0."""
    if retry_after is not None:
        return min(retry_after, MAX_RETRY_WAIT_S)
    longest = min(FIRST_RETRY_WAIT_S * 2**attempt, MAX_RETRY_WAIT_S)
    # Random, so that clients that were refused together do not come back together.
    return random.uniform(longest / 2, longest)  # noqa: S311 (not cryptography)
