"""Makes a virtual environment with locked requirements: pip installs uv, and uv the rest. Standard library only.

Every step is one line on standard output. The output of pip and uv is in `install.log` in the environment.
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
DISK_FOR_INSTALL_BYTES = 2_000_000_000
UV = "uv"
"""Name of uv's program, of its package, and of its file in `requirements/`."""
PROJECTS = ("client",)
"""Requirements that come with a folder of that name, which is installed so that its changes take effect."""
UNFINISHED = "unfinished"
"""Content of a stamp while packages are installed, and after that was interrupted."""
LAST_LINES = 20
"""Lines of a failed step's output that are shown."""
HELP = "check the network, the disk and what `pip config list` shows, then run the same `make` again"


class InstallationError(Exception):
    """The environment cannot be made; the message is one line that says why and what helps."""


class Stamp:
    """File in an environment that says which requirements are installed there.

    Attributes:
        files: the locked requirements.
        projects: folders that are installed as editable.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.files = [ROOT / "requirements" / f"{name}.txt" for name in names]
        self.projects = [ROOT / name for name in names if name in PROJECTS]
        read = [*self.files, *(project / "pyproject.toml" for project in self.projects)]
        self._wanted = hashlib.sha256(b"".join([sys.version.encode(), *map(Path.read_bytes, read)])).hexdigest()
        self._file = folder / f"installed-requirements-{'-'.join(names)}"

    def is_current(self) -> bool:
        """Return whether these requirements are installed in their present versions."""
        return self._content() == self._wanted

    def begin(self) -> bool:
        """Mark them as unfinished; returns whether an earlier begin was not followed by `finish`."""
        interrupted = self._content() == UNFINISHED
        self._file.write_text(UNFINISHED)
        return interrupted

    def finish(self) -> None:
        """Mark them as installed."""
        self._file.write_text(self._wanted)

    def _content(self) -> str:
        return self._file.read_text() if self._file.is_file() else ""


def install(folder: Path, names: Sequence[str]) -> None:
    """Make an environment, or leave a current one alone. A second process waits for the first.

    Args:
        folder: the environment.
        names: files of `requirements/`, without ending.

    Raises:
        InstallationError: the disk is too full, or `venv`, pip or uv failed.
        OSError: a file cannot be read or written.
    """
    stamp = Stamp(folder, names)
    if stamp.is_current():
        return
    free = shutil.disk_usage(ROOT).free
    if free < DISK_FOR_INSTALL_BYTES:
        needed = DISK_FOR_INSTALL_BYTES // 10**6
        raise InstallationError(f"the disk is too full: {needed} MB are needed, {free // 10**6} MB are free")
    with _locked(folder):
        if not stamp.is_current():
            _Installer(folder).install(stamp)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "install.lock").open("w") as file:  # uv has a .lock there
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"environment: waiting for another process that installs into {folder}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Installer:
    """Installation into one environment, step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.log = folder / "install.log"

    def install(self, stamp: Stamp) -> None:
        """Install the requirements of a stamp."""
        if not (self.folder / "bin" / "pip").exists():
            self._make()
        try:
            configured = pip_config.read(self.python)
        except (OSError, subprocess.CalledProcessError) as error:
            words = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            raise InstallationError(f"{self.python} -m pip config list: {words}") from None
        try:
            arguments, variables = pip_config.for_uv(configured)
        except pip_config.NoCounterpart as option:
            reason = f"uv has no counterpart of the option {option} in pip's configuration"
        else:
            if self._install_uv():
                return self._install_with_uv(stamp, arguments, {**os.environ, **variables})
            reason = "pip's index does not have uv"
        print(f"environment: {reason}: pip installs the packages, which takes longer", flush=True)
        return self._install_with_pip(stamp)

    def _make(self) -> None:
        """Make the environment, with pip."""
        began = time.monotonic()
        try:
            venv.create(self.folder, with_pip=True, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise InstallationError(
                f"Python cannot make a virtual environment ({type(error).__name__}): on Debian or Ubuntu install "
                f"python3.{sys.version_info.minor}-venv"
            ) from None
        self._report(f"{self.folder} made with Python {platform.python_version()}", began)

    def _install_uv(self) -> bool:
        """Install uv with pip; returns whether pip's index has it."""
        stamp = Stamp(self.folder, [UV])
        if stamp.is_current():
            return True
        began = time.monotonic()
        status, output = self._run(self._pip(stamp.begin(), "-r", str(stamp.files[0])), os.environ)
        if "No matching distribution found" in output and "Retrying" not in output:  # it was reached
            return False
        self._check(status, output, stamp.files[0])
        stamp.finish()
        self._report("uv installed", began)
        return True

    def _install_with_uv(self, stamp: Stamp, arguments: Sequence[str], environment: dict[str, str]) -> None:
        """Install the files together, then the projects."""
        began = time.monotonic()
        if not _writable(_uv_cache(environment)):
            environment["UV_NO_CACHE"] = "1"
        # Without --compile-bytecode all processes of the first start would compile the same modules at once.
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
        """Return a command of pip; after an interrupted one it installs over packages that seem to be there."""
        start = [str(self.python), "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
        return [*start, *["--ignore-installed"] * interrupted, *options]

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        """Run a command; returns its exit status and its output, which is in the log too."""
        with self.log.open("a") as file:
            file.write(f"$ {' '.join(command)}\n")
        return progress.run(command, self.log, environment)

    def _check(self, status: int, output: str, *sources: Path) -> None:
        """Show the end of a failed command's output, and raise.

        Raises:
            InstallationError: the status is not 0.
        """
        if status:
            print("\n".join(output.splitlines()[-LAST_LINES:]), file=sys.stderr)
            names = " and ".join(str(source.relative_to(ROOT)) for source in sources)
            raise InstallationError(
                f"could not install {names}: the end of the output is above, all of it in {self.log}; {HELP}"
            )

    def _report(self, done: str, began: float, more: str = "") -> None:
        """Print the line of a finished step."""
        print(f"environment: {done} in {time.monotonic() - began:.0f} s{more}", flush=True)


def _uv_cache(environment: Mapping[str, str]) -> Path:
    """Return the folder where uv keeps downloads."""
    own, base = environment.get("UV_CACHE_DIR"), environment.get("XDG_CACHE_HOME")
    return Path(own) if own else Path(base or Path("~/.cache").expanduser(), "uv")


def _writable(folder: Path) -> bool:
    """Return whether files can be written to a folder; it is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
