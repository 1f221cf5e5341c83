"""Set up an environment from locked requirements: `python3 -m tools.environment .venv cpu client`.

pip installs uv, and uv the rest with pip's index settings; where uv fails, pip installs the rest.
Where no Python is supported, uv downloads one first. Their output goes to `install.log` in the
environment. Standard library only, for Python 3.9 or newer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from sam_onnx import pip_options
from sam_onnx.locks import locked
from tools import pip_config
from tools.prerequisites import (
    DOWNLOADS,
    InstallationError,
    check_platform,
    check_python,
    other_python,
)

ROOT = Path(__file__).resolve().parent.parent
MIN_FREE_DISK_BYTES = 2_000_000_000
PROJECT = "client"
"""Requirements with a project folder of the same name, which is installed as editable."""
DOWNLOADED_PYTHON = "3.12"
UNFINISHED = "unfinished"
"""Content of a stamp during an installation, or after an interrupted one."""
PIP_INSTALL = ("-m", "pip", "install", "--no-deps", "--disable-pip-version-check")
UV_INSTALL = ("pip", "install", "--no-config", "--no-deps", "--python")
COMPILE = "--compile-bytecode"
"""Option of uv for a service's environment: all processes of the first start would compile the
modules at once."""


def install(folder: Path, names: Sequence[str]) -> None:
    """Create or update an environment if needed. A second process waits for the first.

    Args:
        folder: the environment.
        names: names of requirements files in `requirements/`, without extension.

    Raises:
        InstallationError: the disk is too full, or `venv`, pip or uv failed.
        OSError: a file cannot be read or written.
    """
    file, wanted = stamp(folder, names)
    if _content(file) == wanted:
        return
    free = shutil.disk_usage(ROOT).free
    if free < MIN_FREE_DISK_BYTES:
        needed = MIN_FREE_DISK_BYTES // 10**6
        raise InstallationError(
            f"not enough disk space: {needed} MB needed, {free // 10**6} MB free"
        )
    with _locked(folder):
        if _content(file) != wanted:
            with _timed(f"environment {folder}"):
                if not (folder / "bin" / "pip").exists():
                    _create(folder)
                interrupted = _content(file) == UNFINISHED
                file.write_text(UNFINISHED)
                _install(folder, names, again=interrupted)
                file.write_text(wanted)


def stamp(folder: Path, names: Sequence[str]) -> tuple[Path, str]:
    """Return the file that records an installation, and its content if the current requirements
    are installed.
    """
    inputs = [*map(_requirements, names), *[ROOT / PROJECT / "pyproject.toml"] * (PROJECT in names)]
    digest = hashlib.sha256(
        b"".join([sys.version.encode(), *map(Path.read_bytes, inputs)])
    ).hexdigest()
    return folder / f"installed-requirements-{'-'.join(names)}", digest


def _content(file: Path) -> str:
    return file.read_text() if file.is_file() else ""


def _requirements(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.txt"


def _install(folder: Path, names: Sequence[str], *, again: bool) -> None:
    """Install with uv, else with pip; `again` replaces what an interrupted installation has
    left.
    """
    log, python = folder / "install.log", str(folder / "bin" / "python")
    environment = _install_uv(folder, log, again=again)
    steps = [
        [
            "--require-hashes",
            *[option for name in names for option in ("-r", str(_requirements(name)))],
        ]
    ]
    steps += [["--no-build-isolation", "--editable", str(ROOT / PROJECT)]] * (PROJECT in names)
    uv = [
        str(folder / "bin" / "uv"),
        *UV_INSTALL,
        python,
        *["--reinstall"] * again,
        *[COMPILE] * (PROJECT in names),
    ]
    if environment and all(_run(log, [*uv, *step], environment) for step in steps):
        return
    print("uv cannot install the packages: pip installs them, which takes longer", flush=True)
    pip = [python, *PIP_INSTALL, *["--ignore-installed"] * again]
    if not all(_run(log, [*pip, *step], os.environ) for step in steps):
        what = " and ".join(f"{name}.txt" for name in names)
        raise InstallationError(
            f"could not install {what}: {_last_line(log)} (all output: {log}); check the network,"
            " the disk and `pip config list`, then run the same `make` again"
        )


def _last_line(log: Path) -> str:
    """Return the last line of a log that says something: before it, pip repeats that it tries
    again.
    """
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def _install_uv(folder: Path, log: Path, *, again: bool = False) -> dict[str, str] | None:
    """Install uv with pip, and begin the log; return uv's environment variables, or None if pip
    cannot install it.

    Raises:
        InstallationError: pip cannot be run, or cannot read its configuration.
    """
    log.write_text("")
    python = str(folder / "bin" / "python")
    try:
        configured = pip_options.read([python, "-m", "pip"])
    except (OSError, subprocess.CalledProcessError) as error:
        message = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise InstallationError(f"{python} -m pip config list: {message}") from None
    pip = [python, *PIP_INSTALL, *["--ignore-installed"] * again]
    installed = _run(log, [*pip, "--require-hashes", "-r", str(_requirements("uv"))], os.environ)
    return {**os.environ, **pip_config.for_uv(configured)} if installed else None


def _run(log: Path, command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Run a command and append its output to the log; return whether it succeeded."""
    with log.open("a") as file:
        return not subprocess.run(
            command, env=environment, stdout=file, stderr=file, check=False
        ).returncode


@contextmanager
def _timed(step: str) -> Iterator[None]:
    """Print the duration of a step, and on a terminal count its seconds meanwhile."""
    started, ended = time.monotonic(), threading.Event()

    def show(end: str) -> None:
        print(f"{step}: {time.monotonic() - started:.0f} s", end=end, file=sys.stderr, flush=True)

    def count() -> None:
        while not ended.wait(1):
            show("\r")

    thread = threading.Thread(target=count, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        ended.set()
    show("\n")


def _locked(folder: Path) -> AbstractContextManager[None]:
    """Return the lock of the environment, whose folder it makes."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "install.lock"  # uv uses .lock
    return locked(
        file, f"waiting for another installation into {folder}", partial(print, flush=True)
    )


def _create(folder: Path) -> None:
    """Create the environment with pip."""
    try:
        venv.create(folder, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallationError(
            f"Python cannot create a virtual environment ({type(error).__name__}): on Debian or"
            f" Ubuntu install python3.{sys.version_info.minor}-venv"
        ) from None


def download_python(folder: Path, reason: InstallationError) -> str:
    """Return a Python that uv downloads into an environment.

    Args:
        folder: the environment.
        reason: why this Python is not supported.

    Raises:
        InstallationError: uv cannot be installed, or cannot download a Python.
    """
    with (
        _locked(folder),
        tempfile.TemporaryDirectory() as temporary,
        _timed(f"Python {DOWNLOADED_PYTHON}"),
    ):
        log, tools = folder / "install.log", Path(temporary)
        _create(tools)
        if environment := _install_uv(tools, log):
            # `no-index` is about packages.
            environment["UV_OFFLINE"] = os.environ.get("UV_OFFLINE", "0")
            command = [
                str(tools / "bin" / "uv"),
                "python",
                "install",
                "--no-bin",
                DOWNLOADED_PYTHON,
            ]
            _run(log, [*command, "--install-dir", str(folder / DOWNLOADS)], environment)
            if found := other_python(folder):
                return found
        raise InstallationError(
            f"{reason}; uv cannot download Python {DOWNLOADED_PYTHON} (see"
            f" {folder / 'install.log'}): put it on PATH with its shared library (Ubuntu:"
            " python3.12-venv and libpython3.12 of ppa:deadsnakes/ppa; Debian:"
            " `PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.12 && pyenv global 3.12`), or"
            " set UV_PYTHON_INSTALL_MIRROR to a mirror of uv's builds"
        )


def main(arguments: Sequence[str]) -> int:
    """Set up an environment; return the exit status."""
    try:
        check_platform()
        folder = Path(arguments[0])
        try:
            check_python()
        except InstallationError as reason:
            python = other_python(folder) or download_python(folder, reason)
            os.execv(python, [python, "-m", "tools.environment", *arguments])  # noqa: S606
        install(folder, arguments[1:])
    except InstallationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or ''}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted: run the same `make` again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
