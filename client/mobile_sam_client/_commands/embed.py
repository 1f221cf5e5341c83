"""`mobile-sam embed`: encode images, or those of a Label Studio project, before anybody clicks."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree as Xml

import httpx
import typer

from mobile_sam_client import AsyncClient, Problem
from mobile_sam_client._commands import connection, output
from mobile_sam_client._commands.files import find_images, list_images, read_image
from mobile_sam_client._commands.options import IMAGES_HELP, option
from mobile_sam_client._commands.output import CommandError, describe, print_error, print_json, print_line

TOKEN = "LABEL_STUDIO_API_KEY"  # noqa: S105 - name of a variable
PAGE_SIZE = 100
TIMEOUT_S = 60.0


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
    """Encode images, or all images of folders, so that later prompts on them are answered quickly.

    Prints the id and name of each image. The service encodes them one at a time, while no caller waits, and keeps the
    embeddings across restarts, for each API key's name.

    With `--label-studio` it encodes all images of a project, read with the access token in LABEL_STUDIO_API_KEY. Run it
    again after an interruption: images that are encoded already are not encoded again.
    """
    if (label_studio is None) != (project is None) or (label_studio is None) == (not images):
        raise typer.BadParameter("expected images, or --label-studio with --project")
    if label_studio and service.max_side:
        raise typer.BadParameter("cannot be combined with --label-studio", param_hint="--max-side")
    files = {path: None for each in images or () for path in _files(each)}

    async def work(url: str) -> bool:
        found: list[Any] = [*files]
        load: Callable[[Any], Any] = read_image
        failed = False
        async with (
            httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=True) as http,
            service.client(AsyncClient, url) as client,
        ):
            if label_studio is not None and project is not None:
                server = LabelStudioProjects(label_studio.rstrip("/"), http, _token())
                found, load = await server.images(project), server.file
            with output.progress("Images", len(found)) as update, output.log_to_stderr():
                async for image, result in client.embed_in_background(found, load=load):
                    update(advance=1)
                    if isinstance(result, Exception):
                        failed = True
                        print_error(f"{image}: {describe(result)}")
                    elif service.as_json:
                        print_json({"image": str(image), "image_id": result})
                    else:
                        print_line(f"{result}  {image}")
        return failed

    url = service.address()
    with connection.probing_client(url) as probe, suppress(Problem):  # which shows that it is reachable
        probe.info()
    if asyncio.run(work(url)):
        raise typer.Exit(1)


def _files(path: Path) -> list[Path]:
    return [path / name for name in list_images(path, path)] if path.is_dir() else find_images([path])


def _token() -> str:
    if token := os.environ.get(TOKEN, ""):
        return token
    raise CommandError(f"set the environment variable {TOKEN} to an access token of Label Studio")


@dataclass
class LabelStudioProjects:
    """A Label Studio server."""

    url: str
    http: httpx.AsyncClient
    token: str
    access: str = ""
    """Access token that was exchanged for a personal access token; it lives for minutes."""

    async def file(self, image: str) -> bytes:
        """Return an image of a task."""
        return (await self.get(image)).content

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
