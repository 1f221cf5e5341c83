"""The page at `/ui` on which a person clicks on images: plain files, served as they are."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

ROUTE = "/ui"
FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"


def page_pages() -> dict[str, Response]:
    """The page itself, and `/ui/`, which leads to it. Links are relative: a proxy may put a prefix before them."""
    page = HTMLResponse((FOLDER / INDEX).read_bytes(), headers={"Cache-Control": "no-cache"})
    return {ROUTE: page, f"{ROUTE}/": RedirectResponse("../ui", status_code=308)}


def page_files() -> frozenset[str]:
    """Paths of the files that the page consists of."""
    return frozenset(
        f"{ROUTE}/{file.relative_to(FOLDER).as_posix()}"
        for file in FOLDER.rglob("*")
        if file.is_file() and file.name != INDEX
    )


class PageFiles(StaticFiles):
    """The files of the page, which a browser asks for again after an update: there is no version in their names."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or 304 where the browser has it."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response
