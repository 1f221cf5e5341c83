"""Setup and checks of the environment for `make`. Standard library only.

python3 -m utils.environment install .venv cpu dev      create an environment from the locked requirements
python -m utils.environment check 127.0.0.1 3000        check that the service can run on this machine and address
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from utils.triton import installation, shared_memory

ROOT = Path(__file__).resolve().parent.parent
MIN_PYTHON, MAX_PYTHON = (3, 10), (3, 12)
MIN_GLIBC = (2, 35)


class EnvironmentCheckError(Exception):
    """The service cannot be installed or started on this machine."""


def check_platform() -> None:
    """Check that Python, and without a Triton on PATH also the platform, support the wheel's Triton.

    Raises:
        EnvironmentCheckError: Python, the platform or the C library is not supported.
    """
    version = sys.version_info[:2]
    if not MIN_PYTHON <= version <= MAX_PYTHON:
        raise EnvironmentCheckError(
            f"Python 3.{MIN_PYTHON[1]} to 3.{MAX_PYTHON[1]} is required, this is {platform.python_version()}: "
            "choose one with `make PYTHON=python3.12`"
        )
    if shutil.which(installation.LAUNCHER):
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise EnvironmentCheckError(
            f"the embedded Triton supports only Linux on x86-64, this is {platform.system()} on "
            f"{platform.machine()}: use the container image, or put a tritonserver on PATH"
        )
    library, number = platform.libc_ver()
    if library == "glibc" and tuple(int(part) for part in number.split(".")[:2]) < MIN_GLIBC:
        raise EnvironmentCheckError(
            f"the embedded Triton requires glibc 2.35 (Debian 12, Ubuntu 22.04) or newer, this is {number}"
        )
    try:
        installation.shared_libpython()
    except installation.TritonSetupError as error:
        raise EnvironmentCheckError(str(error)) from None


def check_shared_memory() -> None:
    """Check that there is enough shared memory for Triton's processes.

    Raises:
        EnvironmentCheckError: there is too little.
    """
    try:
        shared_memory.check_shared_memory()
    except installation.TritonSetupError as error:
        raise EnvironmentCheckError(str(error)) from None


def check_port(host: str, port_text: str) -> None:
    """Check that the address is free.

    Raises:
        EnvironmentCheckError: the port is invalid or in use, or the host is not an address of this machine.
    """
    port = int(port_text) if port_text.isdecimal() else 0
    if not 0 < port < 65536:
        raise EnvironmentCheckError(f"PORT must be a number from 1 to 65535, got {port_text!r}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EnvironmentCheckError(
                f"port {port} of {host} is in use: stop the program there or choose another port"
            ) from None
        raise EnvironmentCheckError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def install(folder: Path, names: Sequence[str]) -> None:
    """Create or update a virtual environment with locked requirements.

    Args:
        folder: the environment.
        names: names of requirements files in `requirements/`, without extension.

    Raises:
        EnvironmentCheckError: the platform is not supported, the disk is too full, or `venv`, pip or uv failed.
    """
    check_platform()
    from utils import installation  # noqa: PLC0415  (needs a POSIX system)

    try:
        installation.install(folder, names)
    except installation.InstallationError as error:
        raise EnvironmentCheckError(str(error)) from None


def main(arguments: Sequence[str]) -> int:
    """Run a command of this module; return the exit status."""
    try:
        if arguments[0] == "install":
            install(Path(arguments[1]), arguments[2:])
        else:
            check_platform()
            check_shared_memory()
            check_port(arguments[1], arguments[2])
    except EnvironmentCheckError as error:
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
