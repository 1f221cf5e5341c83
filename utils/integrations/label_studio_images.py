"""Images of Label Studio's tasks: from its server, from its storages, and from origins that the
operator lists.
"""

import base64
import functools
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from yarl import URL

from utils.errors import ImageNotCached, ImageNotFetched
from utils.inference.request import ImageSource
from utils.integrations.adapter import image_of
from utils.integrations.fetch import Fetcher, parsed_url
from utils.observability.context import KEY_NAME
from utils.settings import Settings

MAX_KNOWN_IMAGES = 4096
KNOWN_FOR_S = 600.0
"""Time for which a URL stands for the same file, so that a second click does not fetch it again."""
REFUSALS = (401, 403)
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
FILES = re.compile(
    r"/(data|storage-data|(tasks|projects)/\d+/(resolve|presign))/(?!.*(\.\.|%[0-9A-Fa-f]{2}))"
)
"""Decoded paths of files in Label Studio, without a way to another path, also for a proxy that
decodes them twice."""
NO_SERVER = (
    "Label Studio's images cannot be fetched: the operator of this service sets"
    " MOBILE_SAM_LABEL_STUDIO_URL to its address, and MOBILE_SAM_LABEL_STUDIO_API_KEY to an access"
    " token"
)
REFUSED = (
    "Label Studio refused the token in MOBILE_SAM_LABEL_STUDIO_API_KEY: it is wrong or expired, or"
    " its user may not read this image"
)

Work = Callable[[ImageSource], Awaitable[dict[str, Any]]]


class TaskImages:
    """Images of tasks, and the ids of those seen lately."""

    def __init__(self, settings: Settings, fetcher: Fetcher | None = None) -> None:
        self._server = URL(settings.label_studio_url) if settings.label_studio_url else None
        self._token, self._access = settings.label_studio_api_key or "", ""
        self._fetcher = fetcher or Fetcher(
            settings.image_origins, settings.max_body_bytes, self._server
        )
        self._ids: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """Image id and its expiry, by the digest of owner and URL."""

    async def answer(self, task_id: Any, text: str, work: Work) -> dict[str, Any]:
        """Return the document of some work on a task's image.

        Args:
            task_id: id of the task.
            text: the image, as the task has it.
            work: takes the image, and returns a document with its `image_id`; done again if that id
                is not cached.

        Raises:
            ServiceError: fetching the image or the work failed.
        """
        owner = KEY_NAME.get()
        if text.startswith("data:"):
            return await work(image_of(text, "image"))
        key = hashlib.sha256(f"{owner}\0{text}".encode()).digest()
        image_id, expires = self._ids.get(key, ("", 0.0))
        if time.monotonic() < expires:
            try:
                return await work(ImageSource(None, image_id, owner))
            except ImageNotCached:
                pass
        document = await work(ImageSource(await self._fetch(task_id, text), None, owner))
        self._ids[key] = document["image_id"], time.monotonic() + KNOWN_FOR_S
        self._ids.move_to_end(key)
        if len(self._ids) > MAX_KNOWN_IMAGES:
            self._ids.popitem(last=False)
        return document

    def check(self) -> None:
        """Raise `ImageNotFetched` if the operator has not named the Label Studio server."""
        if self._server is None or not self._token:
            raise ImageNotFetched(NO_SERVER)

    async def _fetch(self, task_id: Any, text: str) -> bytes:
        scheme = found[1].lower() if (found := SCHEME.match(text)) else ""
        if scheme in ("http", "https"):
            url = text
        else:
            self.check()
            if scheme:  # of a storage: Label Studio sends the file, or redirects to it
                uri = base64.urlsafe_b64encode(text.encode()).decode()
                text = f"/tasks/{int(task_id)}/resolve/?fileuri={uri}"
            url = f"{self._server}".rstrip("/") + "/" + text.lstrip("/")
        if not self._is_own(parsed_url(url)):
            return await self._fetcher.fetch(url)
        token = self._access
        while True:
            try:
                return await self._fetch_own(url)
            except ImageNotFetched as error:
                if error.answered not in REFUSALS:
                    raise
                if not token:
                    raise ImageNotFetched(REFUSED) from None
            # Access tokens live for minutes; another request may have got a new one meanwhile.
            if self._access == token:
                self._access = ""
            token = ""

    def _is_own(self, url: URL) -> bool:
        """Return whether the token goes to a URL: to files of Label Studio, not to its whole
        API.
        """
        server = self._server
        if server is None or url.host is None or url.origin() != server.origin():
            return False
        base = server.path.rstrip("/")
        return url.path.startswith(base) and FILES.match(url.path[len(base) :]) is not None

    async def _fetch_own(self, url: str) -> bytes:
        scheme, token = "Token", self._token
        if token.count(".") == 2:  # a personal access token, which is a JWT
            self._access = self._access or await self._refresh()
            scheme, token = "Bearer", self._access
        header = {"Authorization": f"{scheme} {token}"} if token else {}
        return await self._fetcher.fetch(url, lambda target: header if self._is_own(target) else {})

    async def _refresh(self) -> str:
        url = f"{self._server}".rstrip("/") + "/api/token/refresh/"
        answer = orjson.loads(
            await self._fetcher.fetch(url, method="POST", json={"refresh": self._token})
        )
        return str(answer["access"])


@functools.lru_cache(maxsize=1)
def task_images(settings: Settings) -> TaskImages:
    """Return the images of this process."""
    return TaskImages(settings)
