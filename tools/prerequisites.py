"""Prerequisites of the service: platform, C library and Python. Standard library only, for any Python 3."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence

from utils.triton import installation

MIN_PYTHON, MAX_PYTHON = (3, 10), (3, 12)
MIN_GLIBC = (2, 35)


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
            f"the embedded Triton supports only Linux on x86-64, this is {platform.system()} on "
            f"{platform.machine()}: use the container image (on Windows also WSL 2), or put a tritonserver on PATH"
        )
    library, number = platform.libc_ver()
    if library == "glibc" and tuple(int(part) for part in number.split(".")[:2]) < MIN_GLIBC:
        raise InstallationError(
            f"the embedded Triton requires glibc 2.35 (Debian 12, Ubuntu 22.04) or newer, this is {number}"
        )


def check_libpython() -> None:
    """Check that this Python has the shared library that the wheel's Triton needs.

    Raises:
        InstallationError: it has none.
    """
    if shutil.which(installation.LAUNCHER):
        return
    try:
        installation.shared_libpython()
    except installation.TritonSetupError as error:
        raise InstallationError(str(error)) from None


def supported_python() -> str:
    """Return a supported Python: this one, else one on PATH, else one that uv has installed.

    Raises:
        InstallationError: there is none.
    """
    if MIN_PYTHON <= sys.version_info[:2] <= MAX_PYTHON:
        return sys.executable
    minors = range(MAX_PYTHON[1], MIN_PYTHON[1] - 1, -1)
    # pyenv has a program for each version that it has installed; those that are not activated fail.
    on_path = [[f"python3.{minor}", "-c", "import ensurepip, sys; print(sys.executable)"] for minor in minors]
    of_uv = [["uv", "python", "find", "--system", "--no-python-downloads", f"3.{minor}"] for minor in minors]
    for command in [*on_path, *of_uv]:
        if found := _output(command):
            return found
    raise InstallationError(
        f"Python 3.{MIN_PYTHON[1]} to 3.{MAX_PYTHON[1]} is required, this is {platform.python_version()}, and there "
        "is no other: run `uv python install 3.12`, or install your system's python3.12 and python3.12-venv"
    )


def _output(command: Sequence[str]) -> str:
    """Return what a command prints, or an empty string if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
