"""Set up an environment from locked requirements: `python3 -m tools.environment .venv cpu client`.

pip installs uv, and uv the rest; if uv cannot have pip's configuration, pip installs the rest. Where no Python is
supported, uv downloads one first. Their output goes to `install.log` in the environment. Standard library only, for
Python 3.9 or newer.
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
from contextlib import contextmanager
from pathlib import Path

from tools import pip_config
from tools.prerequisites import DOWNLOADS, InstallationError, check_platform, check_python, other_python

ROOT = Path(__file__).resolve().parent.parent
MIN_FREE_DISK_BYTES = 2_000_000_000
PROJECT = "client"
"""Requirements with a project folder of the same name, which is installed as editable."""
DOWNLOADED_PYTHON = "3.12"
MAX_LINES_SHOWN = 20
"""Lines of output that are shown of a failed command."""
UNFINISHED = "unfinished"
"""Content of a stamp during an installation, or after an interrupted one."""


class Stamp:
    """Record in an environment of the installed requirements.

    Attributes:
        files: the locked requirements.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.files = [ROOT / "requirements" / f"{name}.txt" for name in names]
        inputs = [*self.files, *[ROOT / PROJECT / "pyproject.toml"] * (PROJECT in names)]
        self._wanted = hashlib.sha256(b"".join([sys.version.encode(), *map(Path.read_bytes, inputs)])).hexdigest()
        self._file = folder / f"installed-requirements-{'-'.join(names)}"

    def is_current(self) -> bool:
        """Return whether the current requirements are installed."""
        return self._content() == self._wanted

    def begin(self) -> bool:
        """Mark the installation as unfinished; return whether an earlier one was interrupted."""
        interrupted = self._content() == UNFINISHED
        self._file.write_text(UNFINISHED)
        return interrupted

    def finish(self) -> None:
        """Mark the installation as complete."""
        self._file.write_text(self._wanted)

    def _content(self) -> str:
        return self._file.read_text() if self._file.is_file() else ""


def install(folder: Path, names: Sequence[str]) -> None:
    """Create or update an environment if needed. A second process waits for the first.

    Args:
        folder: the environment.
        names: names of requirements files in `requirements/`, without extension.

    Raises:
        InstallationError: the disk is too full, or `venv`, pip or uv failed.
        OSError: a file cannot be read or written.
    """
    stamp = Stamp(folder, names)
    if stamp.is_current():
        return
    free = shutil.disk_usage(ROOT).free
    if free < MIN_FREE_DISK_BYTES:
        needed = MIN_FREE_DISK_BYTES // 10**6
        raise InstallationError(f"not enough disk space: {needed} MB needed, {free // 10**6} MB free")
    with _locked(folder):
        if not stamp.is_current():
            with _timed(f"environment {folder}"):
                _install(folder, stamp, names)


def _install(folder: Path, stamp: Stamp, names: Sequence[str]) -> None:
    log = Log(folder / "install.log")
    python = folder / "bin" / "python"
    if not (folder / "bin" / "pip").exists():
        _create(folder)
    configured = _configuration_for_uv(python)
    if configured and _install_uv(folder, python, log):
        arguments, environment = configured
        # Otherwise all processes of the first start would compile the same modules at once.
        command = [str(folder / "bin" / "uv"), "pip", "install", "--no-config", "--compile-bytecode", "--no-deps"]
        command += ["--python", str(python), *arguments, *["--reinstall"] * stamp.begin()]
    else:
        command, environment = _pip(python, stamp), {**os.environ}
    files = [option for file in stamp.files for option in ("-r", str(file))]
    for arguments, what in (
        (["--require-hashes", *files], " and ".join(f"{name}.txt" for name in names)),
        *[(["--no-build-isolation", "--editable", str(ROOT / PROJECT)], PROJECT)] * (PROJECT in names),
    ):
        if not log.record([*command, *arguments], environment):
            raise log.failure(what)
    stamp.finish()


class Log:
    """File with the output of pip and uv."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def record(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Run a command and append its output; return whether it succeeded."""
        with self._path.open("a") as file:
            return not subprocess.run(command, env=environment, stdout=file, stderr=file, check=False).returncode

    def text(self) -> str:
        """Return the output so far."""
        return self._path.read_text(errors="replace")

    def failure(self, what: str) -> InstallationError:
        """Print the end of the output of a failed command, and return the error."""
        print(*self.text().splitlines()[-MAX_LINES_SHOWN:], sep="\n", file=sys.stderr)
        return InstallationError(
            f"could not install {what}: all output is in {self._path}; check the network, the disk and "
            "`pip config list`, then run the same `make` again"
        )


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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the environment."""
    import fcntl  # noqa: PLC0415 - Windows has none, and gets a message

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "install.lock").open("w") as file:  # uv uses .lock
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another installation into {folder}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create(folder: Path) -> None:
    """Create the environment with pip."""
    try:
        venv.create(folder, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallationError(
            f"Python cannot create a virtual environment ({type(error).__name__}): on Debian or Ubuntu install "
            f"python3.{sys.version_info.minor}-venv"
        ) from None


def _configuration_for_uv(python: Path) -> tuple[list[str], dict[str, str]] | None:
    """Return uv's arguments and environment for pip's configuration, or None if uv does not support an option of it.

    Raises:
        InstallationError: pip cannot be run, or cannot read its configuration.
    """
    try:
        arguments, variables = pip_config.for_uv(pip_config.read(python))
    except (OSError, subprocess.CalledProcessError) as error:
        message = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise InstallationError(f"{python} -m pip config list: {message}") from None
    except pip_config.UnsupportedOptionError as option:
        _report_slow(f"uv does not support the option {option} of pip's configuration")
        return None
    environment = {**os.environ, **variables}
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    if not _writable(Path(environment.get("UV_CACHE_DIR") or Path(base, "uv"))):
        environment["UV_NO_CACHE"] = "1"
    return arguments, environment


def _writable(folder: Path) -> bool:
    """Create a folder if needed; return whether it is writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _install_uv(folder: Path, python: Path, log: Log) -> bool:
    """Install uv with pip; return whether pip's index has it.

    Raises:
        InstallationError: pip failed for another reason.
    """
    stamp = Stamp(folder, ["uv"])
    if stamp.is_current():
        return True
    command = [*_pip(python, stamp), "--require-hashes", "-r", str(stamp.files[0])]
    installed = log.record(command, os.environ)
    if "No matching distribution found" in log.text() and "Retrying" not in log.text():  # the index was reached
        _report_slow("pip's index does not have uv")
        return False
    if not installed:
        raise log.failure("uv.txt")
    stamp.finish()
    return True


def download_python(folder: Path, reason: InstallationError) -> str:
    """Return a Python that uv downloads into an environment.

    Args:
        folder: the environment.
        reason: why this Python is not supported.

    Raises:
        InstallationError: uv cannot be installed, or cannot download a Python.
    """
    with _locked(folder), tempfile.TemporaryDirectory() as temporary, _timed(f"Python {DOWNLOADED_PYTHON}"):
        log, tools = Log(folder / "install.log"), Path(temporary)
        _create(tools)
        python = tools / "bin" / "python"
        configured = _configuration_for_uv(python)
        if configured and _install_uv(tools, python, log):
            command = [str(tools / "bin" / "uv"), "python", "install", "--no-bin", DOWNLOADED_PYTHON]
            log.record([*command, "--install-dir", str(folder / DOWNLOADS)], configured[1])
            if found := other_python(folder):
                return found
        raise InstallationError(
            f"{reason}; uv cannot download Python {DOWNLOADED_PYTHON} (see {folder / 'install.log'}): put it on PATH "
            "with its shared library (Ubuntu: python3.12-venv and libpython3.12 of ppa:deadsnakes/ppa; Debian: "
            "`PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.12 && pyenv global 3.12`), or set "
            "UV_PYTHON_INSTALL_MIRROR to a mirror of uv's builds"
        )


def _pip(python: Path, stamp: Stamp) -> list[str]:
    """Return a pip command; after an interrupted one it reinstalls packages that look installed."""
    command = [str(python), "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
    return [*command, *["--ignore-installed"] * stamp.begin()]


def _report_slow(reason: str) -> None:
    """Print why pip installs the packages."""
    print(f"{reason}: pip installs the packages, which takes longer", flush=True)


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
