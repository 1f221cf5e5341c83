"""The interactive page at `/ui`: its HTML, and its files below the hash of their version."""

from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from utils.errors import UnknownPath
from utils.observability.routes import PAGE, page_version_of, route_of
from utils.page_version import STYLES, PageVersion, files_in

ROUTE = PAGE
FOLDER = Path(__file__).resolve().parents[1] / "page"
REVALIDATED = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"
"""For files below the hash of their version."""
MAX_AT_ONCE_BYTES = 2**17
"""Size up to which a file is read and sent in one piece: of larger ones, as much waits for a
slow reader."""


def page_pages() -> dict[str, ASGIApp]:
    """Return the page at `/ui`, its files, a redirect from `/ui/`, and the icon that browsers ask
    for.

    Links are relative, so a proxy may add a prefix.
    """
    icon = Response((FOLDER / "icon.svg").read_bytes(), media_type="image/svg+xml")
    files = PageFiles(PageVersion.read(FOLDER))
    return {
        ROUTE: files.answer_html,
        f"{ROUTE}/": RedirectResponse("../ui", status_code=308),
        "/favicon.ico": icon,
        **dict.fromkeys(page_files(), files),
    }


def page_files() -> frozenset[str]:
    """Return the URL paths of the page's static files, without the hash of a version."""
    return frozenset(f"{ROUTE}/{path}" for path in (*files_in(FOLDER), STYLES))


class PageFiles(StaticFiles):
    """The page's HTML and static files.

    Files below the hash of the current version are immutable. Below any other hash, the same files
    are served, but browsers revalidate them: a tab may be older than the service, and replicas may
    differ while they are replaced.

    Starlette looks a file up, opens, reads and closes it in a thread each time, which takes most of
    the processor time of a small answer. Here the event loop does this for small files.
    """

    def __init__(self, version: PageVersion) -> None:
        super().__init__(directory=version.folder)
        self._version = version

    async def answer_html(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the HTML of the files as they are now, or 304 when the browser's copy is
        current.
        """
        self._read_changes()
        headers = {"Cache-Control": REVALIDATED, "ETag": self._version.etag}
        response: Response = HTMLResponse(self._version.html, headers=headers)
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            response = NotModifiedResponse(response.headers)
        await response(scope, receive, send)

    def get_path(self, scope: Scope) -> str:
        """Return the path of the requested file in the folder."""
        return route_of(scope).removeprefix(f"{ROUTE}/")

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, or 304 when the browser's copy is current."""
        if path == STYLES:
            self._read_changes()
            response = Response(self._version.styles, media_type="text/css")
            response.headers["Cache-Control"] = self._cache_control(scope)
            return response
        file, status = self.lookup_path(path)
        if status is None:  # removed since the start
            raise UnknownPath.from_path(scope["path"])
        response = self.file_response(file, status, scope)
        unchanged = self._version.has(path, status)
        response.headers["Cache-Control"] = self._cache_control(scope) if unchanged else REVALIDATED
        is_small = status.st_size <= MAX_AT_ONCE_BYTES
        is_whole_file = isinstance(response, FileResponse) and "range" not in Headers(scope=scope)
        if is_small and is_whole_file:
            headers = dict(response.headers)
            del headers["content-length"]  # the file may have changed meanwhile
            response = Response(Path(file).read_bytes(), headers=headers)
        return response

    def _read_changes(self) -> None:
        if not self._version.is_current():
            self._version = PageVersion.read(self._version.folder)

    def _cache_control(self, scope: Scope) -> str:
        return IMMUTABLE if page_version_of(scope) == self._version.hash else REVALIDATED
