"""Base of both clients: settings, retries, and requests about an image."""

from __future__ import annotations

import functools
import logging
import math
import numbers
import os
import random
import ssl
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import httpx

from mobile_sam_client import _answers
from mobile_sam_client._errors import ImageNotCached, ServiceUnreachable
from mobile_sam_client._images import ImageFile, ImageInput, displayed_pixels, hashed, load_source
from mobile_sam_client._prompts import Region, region_field, request_body
from mobile_sam_client._results import Embedding, ImageResult, Info, Segmentation
from mobile_sam_client._scaling import Scaling
from mobile_sam_client._wire import Wire

if TYPE_CHECKING:
    from mobile_sam_client._local import LocalDecoding

logger = logging.getLogger("mobile_sam_client")

URL = "http://127.0.0.1:3000"
URL_VARIABLE = "MOBILE_SAM_URL"
KEY_VARIABLE = "MOBILE_SAM_API_KEY"
MAX_CONNECTIONS = 16
"""Concurrent requests per client; further ones wait. More would not help: the service rejects requests beyond its own
limit, and they would be retried."""
MIN_WRITE_TIMEOUT_S = 60.0
"""Minimum time to send each 64 KiB of a request: `timeout` is meant for answers and must not abort a slow upload."""
MAX_CONNECT_TIMEOUT_S = 60.0
RETRYABLE_STATUSES = (429, 503)
"""Statuses worth retrying. Not 504: the server has already done the work once."""
MAX_RETRY_WAIT_S = 30.0
"""Upper bound, also for the wait that the service asks for."""
FIRST_RETRY_WAIT_S = 0.2
"""Longest wait before the first retry without `Retry-After`; doubled for each further retry."""
MAX_KNOWN_IMAGES = 4096

T = TypeVar("T")
Result = TypeVar("Result", bound=ImageResult)


class BaseClient:
    """Base of `Client` and `AsyncClient`: settings, retries, and the ids of images that the service has."""

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
            url: URL of the service, or `host:port`. None: the environment variable MOBILE_SAM_URL, or else http://127.0.0.1:3000.
            api_key: API key. None: the environment variable MOBILE_SAM_API_KEY; empty: no key.
            timeout: seconds to wait for a connection (60 at most), for an answer to begin, and between its parts. It
                does not limit uploads; after a large upload the wait is up to 32 s longer.
            retries: maximum number of retries per request.
            model_version: version of the model for all calls, one of `Info.model_versions`. None: the newest.
            max_side: longest side in pixels of the images that are sent. Larger ones are scaled down and sent as JPEG;
                prompts, masks and boxes are those of the whole image, only `Segmentation.image` has the size that was
                sent. None: no limit.
            local: True to decode masks in this process, which needs the extra `local`. The service encodes the images,
                and answers what is not done here: pictures, regions "auto", invalid requests.
            headers: further headers of all requests, such as those that a gateway asks for.
            verify: False not to verify the service's certificate, or a context that verifies it, such as
                `ssl.create_default_context(cafile="ca.pem")`.
            proxy: URL of a proxy. None: the environment variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
            transport: httpx transport, for tests.

        Raises:
            ValueError: an argument is invalid.
            ImportError: the packages of the extra `local` are not installed.
        """
        if not (isinstance(timeout, numbers.Real) and 0 < timeout < math.inf):
            raise ValueError(f"timeout: expected a positive, finite number of seconds, got {timeout!r}")
        _check_integer("retries", retries, 0)
        if model_version is not None:
            _check_integer("model_version", model_version, 1, ", or None")
        if max_side is not None:
            _check_integer("max_side", max_side, 1, ", or None")
        all_headers = httpx.Headers(headers)
        if key := _checked_key(api_key):
            all_headers["Authorization"] = f"Bearer {key}"  # httpx does not print the value of this header
        network: dict[str, Any] = {"verify": verify, "proxy": proxy, "transport": transport}
        self._http = self._http_type(
            base_url=checked_url(url),
            headers=all_headers,
            # No limit on the wait for a free connection: they are in use by this client's own requests.
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
        self._known: dict[str, str] = {}
        self._lock: threading.Lock = threading.Lock()
        self._local: LocalDecoding | None = None
        if local:
            from mobile_sam_client._local import LocalDecoding  # noqa: PLC0415 (optional packages)

            self._local = LocalDecoding(self)

    __init__.__qualname__ = "Client"  # Python's errors about arguments have it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def _parse(self, parser: Callable[..., T], *arguments: Any) -> T:
        """Parse an answer; malformed ones raise `NotThisService`."""
        return await self._wire.run(_answers.expect_valid_answer(self.url)(parser), *arguments)

    async def _info(self) -> Info:
        return await self._parse(_answers.parse_info, await self._wire.read(await self._send("GET", "/info")))

    async def _embed(self, image: ImageInput, region: Region | None) -> Embedding:
        async def read(response: httpx.Response, source: ImageFile) -> list[Embedding]:
            return [await self._parse(_answers.parse_embedding, await self._wire.read(response), source.file)]

        (embedding,) = await self._ask("/embed", image, {"region": region}, read)
        return embedding

    async def _segment(self, image: ImageInput, count: int, **fields: Any) -> list[Segmentation]:
        """Return the best mask of each of `count` objects."""
        photo = functools.partial(displayed_pixels, image)
        if self._local and (found := await self._local.segment(image, fields, photo)) is not None:
            return found

        async def read(response: httpx.Response, _: ImageFile) -> list[Segmentation]:
            content_type, body = response.headers.get("Content-Type", ""), await self._wire.read(response)
            return await self._parse(_answers.parse_segmentations, content_type, body, count, photo)

        return await self._ask("/mobile_sam", image, {**fields, "mask_format": "rle"}, read)

    async def _ask(
        self,
        path: str,
        image: ImageInput,
        fields: Mapping[str, Any],
        read: Callable[[httpx.Response, ImageFile], Awaitable[list[Result]]],
    ) -> list[Result]:
        """Send a request about an image: by its id if known, or by its file if not, or if the id is no longer cached.

        Args:
            path: URL path.
            image: the image.
            fields: the other fields of the request; those that are None are left out.
            read: reads at least one result from the response.
        """
        source, scaling = await self._source(image)
        given = {"model_version": self.model_version, **fields}
        fields = {name: value for name, value in given.items() if value is not None}
        if "region" in fields:
            fields = {**fields, "region": region_field(fields["region"])}
        fields = fields if scaling is None else scaling.fields_to_send(fields)
        results: list[Result] | None = None
        image_id = source.image_id or self._known_id(source.sha256)
        if image_id is not None:
            try:
                body = request_body(image_id, fields)
                results = await read(await self._send("POST", path, body, image_id), source)
            except ImageNotCached:
                logger.info("image %s is no longer cached by the service: sending it again", image_id)
        if results is None:
            sent = await self._file_to_send(source, scaling)
            body = await self._wire.run(request_body, sent.file, fields)
            results = await read(await self._send("POST", path, body, sent.sha256), source)
            if source.sha256:
                self._known_id(source.sha256, results[0].image_id)
        return results if scaling is None else [await self._wire.run(scaling.displayed, each) for each in results]

    async def _source(self, image: ImageInput) -> tuple[ImageFile, Scaling | None]:
        source = await self._wire.run(load_source, image)
        return source, await self._wire.run(self._scaling, image, source.file)

    async def _file_to_send(self, source: ImageFile, scaling: Scaling | None) -> ImageFile:
        if scaling is None and source.sha256:
            return source
        return await self._wire.run(lambda: hashed(scaling.scaled_file(source.file) if scaling else source.file))

    def _scaling(self, image: ImageInput, file: bytes) -> Scaling | None:
        """Return how an image is scaled down; an `Embedding` stays as it was sent. Raises `ValueError`."""
        if isinstance(image, Embedding):
            return image.sent_wh and Scaling((image.width, image.height), image.sent_wh, image.orientation)
        return None if self._max_side is None else Scaling.of_file(file, self._max_side)

    def _known_id(self, sha256: str, new: str | None = None) -> str | None:
        """Return the image id of a file, and remember a new one; the least recently used ids are forgotten.

        Image ids are scoped to an API key, so every client has its own ones.
        """
        with self._lock:
            image_id = new or self._known.get(sha256)
            if image_id is not None:
                self._known.pop(sha256, None)
                self._known[sha256] = image_id
                if len(self._known) > MAX_KNOWN_IMAGES:
                    del self._known[next(iter(self._known))]
            return image_id

    async def _send(
        self, method: str, path: str, body: bytes | None = None, image_id: str | None = None
    ) -> httpx.Response:
        """Send a request, retrying while the service is busy or unreachable, until a response begins.

        Load balancers route by `image_id`, the SHA-256 of the file that the request is about.
        """
        for attempt in range(self._retries + 1):
            retry_after: float | None = None
            try:
                response = await self._wire.send(method, path, body, image_id)
                if response.is_success:
                    return response
                error = _answers.error_from_response(response, await self._wire.read(response), self.url + path)
                if response.status_code not in RETRYABLE_STATUSES:
                    raise error
                retry_after = _answers.parse_retry_after(response.headers.get("Retry-After"))
            except ServiceUnreachable as unreachable:
                error = unreachable
            if attempt == self._retries:
                raise error
            longest = min(FIRST_RETRY_WAIT_S * 2**attempt, MAX_RETRY_WAIT_S)
            jittered = random.uniform(longest / 2, longest)  # noqa: S311 (not cryptography)
            seconds = jittered if retry_after is None else min(retry_after, MAX_RETRY_WAIT_S)
            logger.info("retrying in %.1f s (%d of %d): %s", seconds, attempt + 1, self._retries, error)
            await self._wire.sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")


async def lines_of(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Split chunks into non-empty lines. Only `\\n` ends a line."""
    partial: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        partial.append(first)
        if others:
            for line in (b"".join(partial), *others[:-1]):
                if line.strip():
                    yield line
            partial = others[-1:]


def checked_url(given: str | None) -> str:
    """Return the URL of the service, from the environment if None, with a scheme and without a trailing slash."""
    url = (os.environ.get(URL_VARIABLE) or URL) if given is None else given
    url = f"http://{url}" if isinstance(url, str) and "://" not in url else url
    name = URL_VARIABLE if given is None else "url"
    expected = f"{name}: expected a URL such as {URL}"
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ValueError(f"{expected}, but parsing failed: {error}") from None
    if parsed.userinfo:
        raise ValueError(f"{expected}, got one with a user name or password; pass API keys as api_key")
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.query or parsed.fragment:
        raise ValueError(f"{expected}, got {url!r}")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise ValueError(f"{name}: expected a port from 1 to 65535, got {parsed.port}")
    return str(parsed).rstrip("/")


def _checked_key(api_key: str | None) -> str:
    key = (os.environ.get(KEY_VARIABLE, "") if api_key is None else api_key).strip()
    if not (key.isascii() and key.isprintable()):
        # Raised here, because a library failing to send the key would quote it.
        raise ValueError(f"{KEY_VARIABLE if api_key is None else 'api_key'}: expected printable ASCII")
    return key


def _check_integer(name: str, value: int, minimum: int, alternative: str = "") -> None:
    if not isinstance(value, numbers.Integral) or value < minimum:
        raise ValueError(f"{name}: expected an integer of at least {minimum}{alternative}, got {value!r}")
