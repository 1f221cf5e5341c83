"""Prerequisites of the service: platform, C library and Python. Standard library only, for
Python 3.9 or newer.
"""

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from utils.triton import installation

MIN_PYTHON, MAX_PYTHON = (3, 10), (3, 12)
MIN_GLIBC = (2, 35)
DOWNLOADS = "python"
"""Folder in an environment for a Python that uv downloads: users without access to homes can run
it."""
CHECK = (
    "import ensurepip, sys; from tools import prerequisites; prerequisites.check_python();"
    " print(sys.executable)"
)
"""Program that prints the path of the Python that runs it, and fails if this Python is not
supported."""


class InstallationError(Exception):
    """The environment cannot be set up on this machine."""


def check_platform() -> None:
    """Check that the platform supports the wheel's Triton, unless there is a Triton on PATH.

    Raises:
        InstallationError: the platform or the C library is not supported.
    """
    if shutil.which(installation.LAUNCHER):
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise InstallationError(
            f"the embedded Triton supports only Linux on x86-64, this is {platform.system()} on"
            f" {platform.machine()}: use the container image (on Windows also WSL 2), or put a"
            " tritonserver on PATH"
        )
    library, number = platform.libc_ver()
    if library == "glibc" and tuple(int(part) for part in number.split(".")[:2]) < MIN_GLIBC:
        raise InstallationError(
            "the embedded Triton requires glibc 2.35 (Debian 12, Ubuntu 22.04) or newer, this is"
            f" {number}"
        )


def check_python() -> None:
    """Check that this Python has a supported version and the shared library that the wheel's Triton
    needs.

    Raises:
        InstallationError: it has not.
    """
    if not MIN_PYTHON <= sys.version_info[:2] <= MAX_PYTHON:
        raise InstallationError(
            f"Python 3.{MIN_PYTHON[1]} to 3.{MAX_PYTHON[1]} is required, this is"
            f" {platform.python_version()}"
        )
    if shutil.which(installation.LAUNCHER):
        return
    try:
        installation.shared_libpython()
    except installation.TritonSetupError as error:
        raise InstallationError(str(error)) from None


def other_python(environment: Path) -> str:
    """Return a supported Python: one in the environment, else on PATH, else one that uv has
    installed, else "".

    Args:
        environment: folder of the environment, which may not exist yet.
    """
    minors = range(MAX_PYTHON[1], MIN_PYTHON[1] - 1, -1)
    inside = [
        environment / "bin" / "python",
        *environment.glob(f"{DOWNLOADS}/cpython-*/bin/python"),
    ]
    # pyenv has a program for each version that it has installed; those that are not activated fail.
    on_path = [f"python3.{minor}" for minor in minors]
    of_uv = (
        _output(["uv", "python", "find", "--system", "--no-python-downloads", f"3.{minor}"])
        for minor in minors
    )
    programs = chain(map(str, inside), on_path, of_uv)
    return next(filter(None, (_output([program, "-c", CHECK]) for program in programs)), "")


def _output(command: Sequence[str]) -> str:
    """Return what a command prints, or an empty string if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
