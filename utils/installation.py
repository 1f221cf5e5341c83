"""Setup of a virtual environment with locked requirements: pip installs uv, and uv the rest. Standard library only.

Each step prints one line. The output of pip and uv is in `install.log` in the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from utils import pip_config, progress

ROOT = Path(__file__).resolve().parent.parent
MIN_FREE_DISK_BYTES = 2_000_000_000
UV = "uv"
"""Name of uv's executable, package and requirements file."""
PROJECTS = ("client",)
"""Requirements with a project folder of the same name, which is installed as editable."""
UNFINISHED = "unfinished"
"""Content of a stamp during an installation, or after an interrupted one."""
MAX_SHOWN_LINES = 20
"""Lines shown from the end of a failed step's output."""
HELP = "check the network, the disk and `pip config list`, then run the same `make` again"


class InstallationError(Exception):
    """The environment cannot be set up."""


class Stamp:
    """Record in an environment of the installed requirements.

    Attributes:
        files: the locked requirements.
        projects: project folders, installed as editable.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.files = [ROOT / "requirements" / f"{name}.txt" for name in names]
        self.projects = [ROOT / name for name in names if name in PROJECTS]
        inputs = [*self.files, *(project / "pyproject.toml" for project in self.projects)]
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
            _Installer(folder).install(stamp)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "install.lock").open("w") as file:  # uv uses .lock
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"environment: waiting for another installation into {folder}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Installer:
    """Installation steps for one environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.log = folder / "install.log"

    def install(self, stamp: Stamp) -> None:
        """Install the requirements of the stamp."""
        if not (self.folder / "bin" / "pip").exists():
            self._create()
        try:
            configured = pip_config.read(self.python)
        except (OSError, subprocess.CalledProcessError) as error:
            message = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            raise InstallationError(f"{self.python} -m pip config list: {message}") from None
        try:
            arguments, variables = pip_config.for_uv(configured)
        except pip_config.UnsupportedOptionError as option:
            reason = f"uv does not support the option {option} of pip's configuration"
        else:
            if self._install_uv():
                return self._install_with_uv(stamp, arguments, {**os.environ, **variables})
            reason = "pip's index does not have uv"
        print(f"environment: {reason}: pip installs the packages, which takes longer", flush=True)
        return self._install_with_pip(stamp)

    def _create(self) -> None:
        """Create the environment with pip."""
        began = time.monotonic()
        try:
            venv.create(self.folder, with_pip=True, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise InstallationError(
                f"Python cannot create a virtual environment ({type(error).__name__}): on Debian or Ubuntu install "
                f"python3.{sys.version_info.minor}-venv"
            ) from None
        self._report(f"{self.folder} created with Python {platform.python_version()}", began)

    def _install_uv(self) -> bool:
        """Install uv with pip; return whether pip's index has it."""
        stamp = Stamp(self.folder, [UV])
        if stamp.is_current():
            return True
        began = time.monotonic()
        status, output = self._run(self._pip(stamp.begin(), "-r", str(stamp.files[0])), os.environ)
        if "No matching distribution found" in output and "Retrying" not in output:  # the index was reached
            return False
        self._check(status, output, stamp.files[0])
        stamp.finish()
        self._report("uv installed", began)
        return True

    def _install_with_uv(self, stamp: Stamp, arguments: Sequence[str], environment: dict[str, str]) -> None:
        """Install all files at once, then the projects."""
        began = time.monotonic()
        if not _writable(_uv_cache(environment)):
            environment["UV_NO_CACHE"] = "1"
        # Otherwise all processes of the first start would compile the same modules at once.
        uv = [str(self.folder / "bin" / UV), "pip", "install", "--no-config", "--no-deps", "--compile-bytecode"]
        uv += ["--python", str(self.python)]
        options = ["--require-hashes", *arguments, *["--reinstall"] * stamp.begin()]
        files = [option for file in stamp.files for option in ("-r", str(file))]
        status, output = self._run([*uv, *options, *files], environment)
        self._check(status, output, *stamp.files)
        for project in stamp.projects:
            command = [*uv, "--offline", "--no-progress", "--no-build-isolation", "--editable", str(project)]
            self._check(*self._run(command, environment), project)
        stamp.finish()
        installed = re.search(r"^Installed (\d+) package", output, re.MULTILINE)
        self._report(f"{installed[1] if installed else 'no'} packages installed", began, f" (log: {self.log})")

    def _install_with_pip(self, stamp: Stamp) -> None:
        """Install the files and projects one by one."""
        interrupted = stamp.begin()
        for source, options in [
            *((file, ["-r", str(file)]) for file in stamp.files),
            *((project, ["--no-build-isolation", "--editable", str(project)]) for project in stamp.projects),
        ]:
            began = time.monotonic()
            self._check(*self._run(self._pip(interrupted, *options), os.environ), source)
            self._report(f"{source.relative_to(ROOT)} installed", began)
        stamp.finish()

    def _pip(self, interrupted: bool, *options: str) -> list[str]:
        """Return a pip command; after an interrupted one it reinstalls packages that look installed."""
        start = [str(self.python), "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
        return [*start, *["--ignore-installed"] * interrupted, *options]

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        """Run a command; return its exit status and its output, which is also logged."""
        with self.log.open("a") as file:
            file.write(f"$ {' '.join(command)}\n")
        return progress.run(command, self.log, environment)

    def _check(self, status: int, output: str, *sources: Path) -> None:
        """Print the end of a failed command's output and raise.

        Raises:
            InstallationError: the status is not 0.
        """
        if status:
            print("\n".join(output.splitlines()[-MAX_SHOWN_LINES:]), file=sys.stderr)
            names = " and ".join(str(source.relative_to(ROOT)) for source in sources)
            raise InstallationError(
                f"could not install {names}: see the output above, or all of it in {self.log}; {HELP}"
            )

    def _report(self, step: str, began: float, suffix: str = "") -> None:
        """Print one line about a finished step."""
        print(f"environment: {step} in {time.monotonic() - began:.0f} s{suffix}", flush=True)


def _uv_cache(environment: Mapping[str, str]) -> Path:
    """Return uv's cache folder."""
    cache, base = environment.get("UV_CACHE_DIR"), environment.get("XDG_CACHE_HOME")
    return Path(cache) if cache else Path(base or Path("~/.cache").expanduser(), "uv")


def _writable(folder: Path) -> bool:
    """Create a folder if needed; return whether it is writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
