"""The images of a Label Studio project."""

import os
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as Xml

import httpx

from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._errors import describe_error

TOKEN_VARIABLE = "LABEL_STUDIO_API_KEY"  # noqa: S105 - name of a variable
PAGE_SIZE = 100
TIMEOUT_S = 60.0


def read_token() -> str:
    """Return the access token in the environment."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        what = f"the environment variable {TOKEN_VARIABLE}"
        raise CommandError(f"set {what} to an access token of Label Studio")
    return token


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
        response = await self.get(image)
        return response.content

    async def get(self, path: str, **parameters: Any) -> httpx.Response:
        """Return a response, or raise `CommandError`; the token goes to Label Studio only."""
        address = path if "://" in path else f"{self.url}/{path.lstrip('/')}"
        url = httpx.URL(address, params=parameters or None)
        server = httpx.URL(self.url)
        is_label_studio = (url.scheme, url.netloc) == (server.scheme, server.netloc)
        try:
            headers = await self._headers() if is_label_studio else {}
            response = await self.http.get(url, headers=headers)
            if response.status_code == 401 and is_label_studio and self.access:
                # The access token has expired.
                self.access = ""
                response = await self.http.get(url, headers=await self._headers())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{url.copy_with(query=None)}: {describe_error(error)}") from None
        if not response.is_success:
            hint = ""
            if response.status_code in (401, 403):
                hint = f": {TOKEN_VARIABLE} is wrong, or its user may not read this"
            status = f"status {response.status_code}{hint}"
            raise CommandError(f"{url.copy_with(query=None)}: {status}")
        return response

    async def _headers(self) -> dict[str, str]:
        is_personal = self.token.count(".") == 2  # a JSON web token
        if not is_personal:
            return {"Authorization": f"Token {self.token}"}
        if not self.access:
            url = f"{self.url}/api/token/refresh/"
            response = await self.http.post(url, json={"refresh": self.token})
            if not response.is_success:
                status = f"status {response.status_code}"
                raise CommandError(f"Label Studio refused the token in {TOKEN_VARIABLE}: {status}")
            self.access = response.json()["access"]
        return {"Authorization": f"Bearer {self.access}"}

    async def images(self, project: int) -> list[str]:
        """Return the URLs of all images of a project's tasks, each once."""
        response = await self.get(f"/api/projects/{project}/")
        config = Xml.fromstring(response.json()["label_config"])  # noqa: S314 - expat bounds entities
        tags = [tag for tag in config.iter() if tag.tag.lower() == "image"]
        keys = [tag.get("value", "").removeprefix("$") for tag in tags]
        if not any(keys):
            raise CommandError(f"project {project}: no <Image> tag in its labeling configuration")
        urls: dict[str, None] = {}
        for task in await self._tasks(project):
            for key in keys:
                url = task["data"].get(key)
                if isinstance(url, str):
                    urls[url] = None
        return list(urls)

    async def _tasks(self, project: int) -> list[dict[str, Any]]:
        """Return all tasks of a project, which come in pages."""
        tasks: list[dict[str, Any]] = []
        page = 1
        total = 1
        while len(tasks) < total:
            response = await self.get("/api/tasks", project=project, page=page, page_size=PAGE_SIZE)
            document = response.json()
            if not document["tasks"]:
                break
            tasks += document["tasks"]
            total = document["total"]
            page += 1
        return tasks
