"""Sets up and checks what `make` needs, and says in one line what is wrong. Standard library only.

python3 -m utils.environment install .venv cpu dev      an environment from the locked requirements
python -m utils.environment check 127.0.0.1 3000        can the service run here, at this address?
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from utils import triton

ROOT = Path(__file__).resolve().parent.parent
MIN_PYTHON, MAX_PYTHON = (3, 10), (3, 12)
MIN_GLIBC = (2, 35)
DISK_FOR_INSTALL = 2_000_000_000
STAMP = "installed-requirements"
PROJECTS = ("client",)
"""Requirements that come with a folder of that name, which is installed so that its changes take effect."""


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
            raise Unfit(f"port {port} of {host} is in use: stop what runs there, or `make serve PORT=3001`") from None
        raise Unfit(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def install(folder: Path, names: Sequence[str]) -> None:
    """Make a virtual environment with locked requirements, or leave a current one alone.

    Args:
        folder: the environment.
        names: which files of `requirements/`, without ending.

    Raises:
        Unfit: the platform, the disk, `venv` or `pip` does not let it.
    """
    check_platform()
    files = [ROOT / "requirements" / f"{name}.txt" for name in names]
    projects = [ROOT / name for name in names if name in PROJECTS]
    read = [*files, *(project / "pyproject.toml" for project in projects)]
    wanted = hashlib.sha256(b"".join([sys.version.encode(), *(file.read_bytes() for file in read)])).hexdigest()
    stamp = folder / f"{STAMP}-{'-'.join(names)}"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    free = shutil.disk_usage(ROOT).free
    if free < DISK_FOR_INSTALL:
        raise Unfit(f"the disk is too full: {DISK_FOR_INSTALL // 10**6} MB are needed, {free // 10**6} MB are free")
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"Making the environment {folder} with Python {platform.python_version()}", flush=True)
        try:
            venv.create(folder, with_pip=True, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unfit(
                f"Python cannot make a virtual environment ({type(error).__name__}): on Debian or Ubuntu install "
                f"python3.{sys.version_info.minor}-venv"
            ) from None
    # The files are complete and locked: nothing is left for pip to resolve.
    pip = [str(python), "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
    steps = [
        *((file, ["-r", str(file)]) for file in files),
        *((project, ["--no-build-isolation", "--editable", str(project)]) for project in projects),
    ]
    for source, options in steps:
        print(f"Installing {source.relative_to(ROOT)} (at most a minute or two on a fast line)", flush=True)
        if subprocess.run([*pip, *options], check=False).returncode:
            raise Unfit(f"pip could not install {source.relative_to(ROOT)}: its own message is above")
    stamp.write_text(wanted)


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
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
