"""Sets up and checks what `make` needs, and says in one line what is wrong. Standard library only.

python3 -m utils.environment install .venv cpu dev      an environment from the locked requirements
python -m utils.environment check 127.0.0.1 3000        can the service run here, at this address?
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

from utils import triton

ROOT = Path(__file__).resolve().parent.parent
MIN_PYTHON, MAX_PYTHON = (3, 10), (3, 12)
MIN_GLIBC = (2, 35)


class Unfit(Exception):
    """This machine cannot do what was asked; the message is one line that says why and what helps."""


def check_platform() -> None:
    """Can the wheel's Triton run here, if no other is on PATH?

    Raises:
        Unfit: the platform, the C library or the Python is not one it runs on.
    """
    version = sys.version_info[:2]
    if not MIN_PYTHON <= version <= MAX_PYTHON:
        raise Unfit(
            f"Python 3.{MIN_PYTHON[1]} to 3.{MAX_PYTHON[1]} is needed, this is {platform.python_version()}: "
            "choose one with `make PYTHON=python3.12`"
        )
    if shutil.which(triton.LAUNCHER):
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Unfit(
            f"the embedded Triton exists for Linux on x86-64 only, this is {platform.system()} on "
            f"{platform.machine()}: use the container image, or put a tritonserver on PATH"
        )
    library, number = platform.libc_ver()
    if library == "glibc" and tuple(int(part) for part in number.split(".")[:2]) < MIN_GLIBC:
        raise Unfit(f"the embedded Triton needs glibc 2.35 (Debian 12, Ubuntu 22.04) or newer, this is {number}")
    try:
        triton.shared_libpython()
    except triton.TritonSetupError as error:
        raise Unfit(str(error)) from None


def check_shared_memory() -> None:
    """Is there room for what Triton's processes exchange?

    Raises:
        Unfit: there is not.
    """
    try:
        triton.check_shared_memory()
    except triton.TritonSetupError as error:
        raise Unfit(str(error)) from None


def check_port(host: str, port_text: str) -> None:
    """Is the address free?

    Raises:
        Unfit: no port number, in use, or no address of this machine.
    """
    port = int(port_text) if port_text.isdecimal() else 0
    if not 0 < port < 65536:
        raise Unfit(f"PORT must be a number from 1 to 65535, got {port_text!r}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unfit(f"port {port} of {host} is in use: stop what runs there, or choose another port") from None
        raise Unfit(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def install(folder: Path, names: Sequence[str]) -> None:
    """Make a virtual environment with locked requirements, or leave a current one alone.

    Args:
        folder: the environment.
        names: files of `requirements/`, without ending.

    Raises:
        Unfit: the platform, the disk, `venv`, pip or uv does not let it.
    """
    check_platform()
    from utils import installation  # noqa: PLC0415  (for POSIX systems only)

    try:
        installation.install(folder, names)
    except installation.InstallationError as error:
        raise Unfit(str(error)) from None


def main(arguments: Sequence[str]) -> int:
    """Run a command of this module; returns the exit status."""
    try:
        if arguments[0] == "install":
            install(Path(arguments[1]), arguments[2:])
        else:
            check_platform()
            check_shared_memory()
            check_port(arguments[1], arguments[2])
    except Unfit as unfit:
        print(f"error: {unfit}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or ''}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted: run the same `make` again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
