"""The interactive page at `/ui`, served as static files."""

from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from utils.errors import UnknownPath

ROUTE = "/ui"
FOLDER = Path(__file__).resolve().parents[1] / "page"
INDEX = "index.html"
NOT_SERVED = frozenset({INDEX, "deno.json"})
"""Files without a URL of their own."""
MAX_AT_ONCE_BYTES = 2**17
"""Size up to which a file is read and sent in one piece: of larger ones, as much waits for a
slow reader."""


def page_pages() -> dict[str, ASGIApp]:
    """Return the page at `/ui`, its files, a redirect from `/ui/`, and the icon that browsers ask
    for.

    Links are relative, so a proxy may add a prefix.
    """
    icon = Response((FOLDER / "icon.svg").read_bytes(), media_type="image/svg+xml")
    page = HTMLResponse((FOLDER / INDEX).read_bytes(), headers={"Cache-Control": "no-cache"})
    return {
        ROUTE: page,
        f"{ROUTE}/": RedirectResponse("../ui", status_code=308),
        "/favicon.ico": icon,
        **dict.fromkeys(page_files(), PageFiles()),
    }


def page_files() -> frozenset[str]:
    """Return the URL paths of the page's static files."""
    return frozenset(
        f"{ROUTE}/{file.relative_to(FOLDER).as_posix()}"
        for file in FOLDER.rglob("*")
        if file.is_file() and file.name not in NOT_SERVED
    )


class PageFiles(StaticFiles):
    """The page's static files. Browsers revalidate them on each load because their names carry no
    version.

    Starlette looks a file up, opens, reads and closes it in a thread each time, which takes most of
    the processor time of a small answer. Here the event loop does this for small files.
    """

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    def get_path(self, scope: Scope) -> str:
        """Return the path of the requested file in the folder."""
        return str(scope["path"]).removeprefix(f"{ROUTE}/")

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, or 304 when the browser's copy is current."""
        file, status = self.lookup_path(path)
        if status is None:  # removed since the start
            raise UnknownPath.from_path(scope["path"])
        response = self.file_response(file, status, scope)
        response.headers["Cache-Control"] = "no-cache"
        is_small = status.st_size <= MAX_AT_ONCE_BYTES
        is_whole_file = isinstance(response, FileResponse) and "range" not in Headers(scope=scope)
        if is_small and is_whole_file:
            headers = dict(response.headers)
            del headers["content-length"]  # the file may have changed meanwhile
            response = Response(Path(file).read_bytes(), headers=headers)
        return response
