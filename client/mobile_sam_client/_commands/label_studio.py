"""`mobile-sam embed --label-studio`: encode the images of a Label Studio project before anybody clicks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as Xml

import httpx

from mobile_sam_client import AsyncClient, BodyTooLarge, InvalidImage, InvalidRequest, MobileSamError
from mobile_sam_client._commands import connection
from mobile_sam_client._commands.output import CommandError, describe, progress

TOKEN = "LABEL_STUDIO_API_KEY"  # noqa: S105 - name of a variable
PAGE_SIZE = 100
TIMEOUT_S = 60.0
CONCURRENCY = 4


@dataclass
class LabelStudio:
    """A Label Studio server."""

    url: str
    http: httpx.AsyncClient
    token: str
    access: str = ""
    """Access token that was exchanged for a personal access token; it lives for minutes."""

    async def get(self, path: str, **parameters: Any) -> httpx.Response:
        """Return a response; the token goes to Label Studio only.

        Raises:
            CommandError: Label Studio is unreachable, or answers with an error.
        """
        url = httpx.URL(path if "://" in path else f"{self.url}/{path.lstrip('/')}", params=parameters or None)
        own = (url.scheme, url.netloc) == (httpx.URL(self.url).scheme, httpx.URL(self.url).netloc)
        try:
            response = await self.http.get(url, headers=await self._headers() if own else {})
            if response.status_code == 401 and own and self.access:
                self.access = ""
                response = await self.http.get(url, headers=await self._headers())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{url.copy_with(query=None)}: {describe(error)}") from None
        if not response.is_success:
            hint = f": {TOKEN} is wrong, or its user may not read this" if response.status_code in (401, 403) else ""
            raise CommandError(f"{url.copy_with(query=None)}: status {response.status_code}{hint}")
        return response

    async def _headers(self) -> dict[str, str]:
        if self.token.count(".") != 2:
            return {"Authorization": f"Token {self.token}"}
        if not self.access:
            response = await self.http.post(f"{self.url}/api/token/refresh/", json={"refresh": self.token})
            if not response.is_success:
                raise CommandError(f"Label Studio refused the token in {TOKEN}: status {response.status_code}")
            self.access = response.json()["access"]
        return {"Authorization": f"Bearer {self.access}"}

    async def images(self, project: int) -> list[str]:
        """Return the URLs of all images of a project's tasks, each once.

        Raises:
            CommandError: as `get`, or the labeling configuration has no image.
        """
        config = (await self.get(f"/api/projects/{project}/")).json()["label_config"]
        tags = [each for each in Xml.fromstring(config).iter() if each.tag.lower() == "image"]  # noqa: S314 - expat bounds entities
        keys = [tag.get("value", "").removeprefix("$") for tag in tags]
        if not any(keys):
            raise CommandError(f"project {project}: no <Image> tag in its labeling configuration")
        tasks: list[dict[str, Any]] = []
        page, total = 1, 1
        while len(tasks) < total:
            found = (await self.get("/api/tasks", project=project, page=page, page_size=PAGE_SIZE)).json()
            if not found["tasks"]:
                break
            tasks, total, page = tasks + found["tasks"], found["total"], page + 1
        texts = [task["data"].get(key) for task in tasks for key in keys]
        return list(dict.fromkeys(text for text in texts if isinstance(text, str)))


@dataclass
class Outcome:
    """Results of a project's images."""

    image_ids: dict[str, str] = field(default_factory=dict)
    """Ids of the encoded images, by URL."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons of the other ones, by URL."""


async def embed_project(
    url: str, label_studio_url: str, project: int, outcome: Outcome, on_image: Callable[[str, str], None]
) -> None:
    """Encode all images of a project.

    Args:
        url: URL of the service.
        label_studio_url: URL of Label Studio.
        project: id of the project.
        outcome: gets the result of each image.
        on_image: called with the URL and the id of each encoded image.

    Raises:
        CommandError: the project cannot be read.
        MobileSamError: the service is unreachable, or refuses the API key.
    """
    async with _label_studio(label_studio_url) as server, connection.make_client(AsyncClient, url) as client:
        await client.info()
        images = await server.images(project)
        remaining = iter(images)
        with progress("Images") as bar:
            bar.update(bar.task_ids[0], total=len(images))

            async def worker() -> None:
                for image in remaining:
                    try:
                        file = (await server.get(image)).content
                        outcome.image_ids[image] = (await client.embed(file)).image_id
                        on_image(image, outcome.image_ids[image])
                    except (CommandError, InvalidImage, InvalidRequest, BodyTooLarge, ValueError) as error:
                        outcome.failures[image] = describe(error)
                    bar.advance(bar.task_ids[0])

            workers = [asyncio.create_task(worker()) for _ in range(CONCURRENCY)]
            try:
                await asyncio.gather(*workers)
            except MobileSamError:
                for task in workers:
                    task.cancel()
                raise


@asynccontextmanager
async def _label_studio(url: str) -> AsyncIterator[LabelStudio]:
    token = os.environ.get(TOKEN, "")
    if not token:
        raise CommandError(f"set the environment variable {TOKEN} to an access token of Label Studio")
    async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=True) as http:
        yield LabelStudio(url.rstrip("/"), http, token)
