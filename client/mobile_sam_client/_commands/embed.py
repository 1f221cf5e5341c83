"""`mobile-sam embed`: encode images, or those of a Label Studio project, before anybody clicks."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree as Xml

import httpx
import typer

from mobile_sam_client import AsyncClient, Client
from mobile_sam_client._commands import connection
from mobile_sam_client._commands.files import find_images
from mobile_sam_client._commands.options import IMAGES_HELP, option
from mobile_sam_client._commands.output import CommandError, describe, print_error, print_json, print_line

TOKEN = "LABEL_STUDIO_API_KEY"  # noqa: S105 - name of a variable
PAGE_SIZE = 100
TIMEOUT_S = 60.0
CONCURRENCY = 4


def embed(
    images: Annotated[
        list[Path] | None,
        typer.Argument(metavar="IMAGE", help=f"{IMAGES_HELP} Or `--label-studio`.", show_default=False),
    ] = None,
    *,
    label_studio: Annotated[str | None, option("Address of Label Studio, in place of images.", "URL")] = None,
    project: Annotated[int | None, option("Project in Label Studio.", "N")] = None,
    service: connection.ImageOptions,
) -> None:
    """Encode images, so that later prompts on them are answered quickly.

    Prints the id and name of each image. The service keeps the embeddings across restarts, for each API key's name.

    With `--label-studio` it encodes all images of a project, read with the access token in LABEL_STUDIO_API_KEY. Run it
    again after an interruption: images that are encoded already are not encoded again.
    """

    def show(image: str, image_id: str) -> None:
        print_json({"image": image, "image_id": image_id}) if service.as_json else print_line(f"{image_id}  {image}")

    if (label_studio is None) != (project is None) or (label_studio is None) == (not images):
        raise typer.BadParameter("expected images, or --label-studio with --project")
    if label_studio and service.max_side:
        raise typer.BadParameter("cannot be combined with --label-studio", param_hint="--max-side")
    if label_studio is not None and project is not None:
        with service.address() as url:
            failures = asyncio.run(_embed_project(url, label_studio, project, show))
        for image, reason in failures.items():
            print_error(f"{image}: {reason}")
        if failures:
            raise typer.Exit(1)
        return

    def work(client: Client, image: Path, file: bytes) -> None:
        show(str(image), client.embed(file).image_id)

    service.for_each(dict.fromkeys(find_images(images or ()), ()), work)


async def _embed_project(
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
        server = LabelStudioProjects(label_studio_url.rstrip("/"), http, token)

        async def work(image: str) -> None:
            try:
                file = (await server.get(image)).content
                on_image(image, (await client.embed(file)).image_id)
            except connection.IMAGE_ERRORS as error:
                failures[image] = describe(error)

        await connection.run_concurrently(await server.images(project), work, CONCURRENCY)
    return failures


@dataclass
class LabelStudioProjects:
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
