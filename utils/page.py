"""The interactive page at `/ui`, served as static files."""

from pathlib import Path

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

ROUTE = "/ui"
FOLDER = Path(__file__).resolve().parents[1] / "page"
INDEX = "index.html"
NOT_SERVED = frozenset({INDEX, "deno.json"})
"""Files without a URL of their own."""


def page_pages() -> dict[str, Response]:
    """Return the page at `/ui`, a redirect from `/ui/`, and the icon that browsers ask for.

    Links are relative, so a proxy may add a prefix.
    """
    icon = Response((FOLDER / "icon.svg").read_bytes(), media_type="image/svg+xml")
    page = HTMLResponse((FOLDER / INDEX).read_bytes(), headers={"Cache-Control": "no-cache"})
    return {ROUTE: page, "/favicon.ico": icon, f"{ROUTE}/": RedirectResponse("../ui", status_code=308)}


def page_files() -> frozenset[str]:
    """Return the URL paths of the page's static files."""
    return frozenset(
        f"{ROUTE}/{file.relative_to(FOLDER).as_posix()}"
        for file in FOLDER.rglob("*")
        if file.is_file() and file.name not in NOT_SERVED
    )


class PageFiles(StaticFiles):
    """The page's static files. Browsers revalidate them on each load because their names carry no version."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, or 304 when the browser's copy is current."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response
