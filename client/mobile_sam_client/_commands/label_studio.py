"""`mobile-sam embed --label-studio`: encode the images of a Label Studio project before anybody clicks."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as Xml

import httpx

from mobile_sam_client import AsyncClient, BodyTooLarge, InvalidImage, InvalidRequest
from mobile_sam_client._commands import connection
from mobile_sam_client._commands.output import CommandError, describe

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
        """Return a response, or raise `CommandError`; the token goes to Label Studio only."""
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
        """Return the URLs of all images of a project's tasks, each once."""
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


async def embed_project(
    url: str, label_studio_url: str, project: int, on_image: Callable[[str, str], None]
) -> dict[str, str]:
    """Encode all images of a project, and return the reasons of those that failed, by URL.

    Args:
        url: URL of the service.
        label_studio_url: URL of Label Studio.
        project: id of the project.
        on_image: called with the URL and the id of each encoded image.

    Raises:
        CommandError: the project cannot be read.
        MobileSamError: the service is unreachable, or refuses the API key.
    """
    token = os.environ.get(TOKEN, "")
    if not token:
        raise CommandError(f"set the environment variable {TOKEN} to an access token of Label Studio")
    failures: dict[str, str] = {}
    async with (
        httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=True) as http,
        connection.make_client(AsyncClient, url) as client,
    ):
        await client.info()
        server = LabelStudio(label_studio_url.rstrip("/"), http, token)

        async def work(image: str) -> None:
            try:
                file = (await server.get(image)).content
                on_image(image, (await client.embed(file)).image_id)
            except (CommandError, InvalidImage, InvalidRequest, BodyTooLarge, ValueError) as error:
                failures[image] = describe(error)

        await connection.run_concurrently(await server.images(project), work, CONCURRENCY)
    return failures
