"""Choice and setup of the Triton to run: binary, backends, environment and flags.

A `tritonserver` on PATH (NVIDIA's container) is preferred. Otherwise the one in the
`nvidia-pytriton` wheel is used: its binary, its Python backend and the stub for the running Python
version are linked into a folder, together with the Python-based backends of `triton_backends/`,
which have the names and config keys of NVIDIA's C++ ones.

The folder also has two scripts. `tritonserver`, which BentoML finds because `prepare()` puts the
folder first on PATH, starts the watchdog (`utils.triton.watchdog`). The watchdog runs
`plain/tritonserver`, which sets Triton's environment and starts the binary; commands and services
without a watchdog run it too (`utils.triton.environment`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

LAUNCHER, PLAIN = "tritonserver", "plain/tritonserver"
STUB = "triton_python_backend_stub"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ROOT = Path(__file__).resolve().parents[2]
"""Folder of `service.py`."""
PYTHON_BASED_BACKENDS = ROOT / "triton_backends"
NVIDIA_DRIVER = Path("/dev/nvidiactl")


class TritonSetupError(RuntimeError):
    """Triton cannot be started on this machine."""


@dataclass(frozen=True)
class Installation:
    """Triton installation on this machine."""

    binary: Path
    backends: Path
    """Folder with one sub-folder per backend."""
    libraries: Path | None = None
    """Folder to add to `LD_LIBRARY_PATH`, if needed."""
    stub: Path | None = None
    """Python backend stub for the running Python version, if it is not in the backend's folder."""

    def backend_names(self) -> set[str]:
        """Return the names of the installed backends."""
        return (
            {entry.name for entry in self.backends.iterdir() if entry.is_dir()}
            if self.backends.is_dir()
            else set()
        )


def find_installation() -> Installation:
    """Return the Triton to use: one on PATH, else the wheel's.

    Raises:
        TritonSetupError: none supports this platform and Python version.
    """
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidate = Path(folder or ".") / LAUNCHER
        if candidate.is_file() and os.access(candidate, os.X_OK) and not _is_launcher(candidate):
            binary = candidate.resolve()
            return Installation(binary, binary.parent.parent / "backends")
    return _installation_of_wheel()


def prepare(cache_dir: Path) -> Path:
    """Assemble Triton's folder in the cache, put it first on PATH, and return the `tritonserver`
    for BentoML to start.

    Several processes may call this at once. Later calls are fast. Each combination of Triton and
    Python has a folder.

    Raises:
        TritonSetupError: no usable Triton, no shared libpython, or the folder is not for writing
            and executing files.
    """
    installation = find_installation()
    try:
        home = _assemble(installation, cache_dir / "triton")
    except OSError as error:
        raise TritonSetupError(
            f"cannot write Triton's folder {cache_dir / 'triton'}: {error.strerror}"
        ) from error
    if not os.access(home / LAUNCHER, os.X_OK):
        raise TritonSetupError(
            f"cannot execute files in {home}: mount it without noexec (Docker: `--tmpfs /tmp:exec`)"
        )
    search = os.environ.get("PATH", "").split(os.pathsep)
    if str(home) not in search:
        os.environ["PATH"] = os.pathsep.join([str(home), *search])
    return home / LAUNCHER


@contextlib.contextmanager
def building(home: Path, complete: Path) -> Iterator[Path]:
    """Yield a new folder that becomes `home` at the end, unless `complete` shows that another
    process was first.
    """
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(dir=home.parent, prefix=".building-"))
    try:
        yield folder
        try:
            folder.rename(home)
        except OSError:
            if not complete.exists():
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shared_libpython() -> Path:
    """Return the `libpython3.X.so.1.0` that the Python backend's stub links to.

    Raises:
        TritonSetupError: there is none for this Python.
    """
    name = f"libpython{PYTHON}.so.1.0"
    libdir, libpl, multiarch = (
        sysconfig.get_config_var(variable) or "" for variable in ("LIBDIR", "LIBPL", "MULTIARCH")
    )
    standard = (f"{sys.base_prefix}/lib", f"/usr/lib/{multiarch}", "/usr/lib64", "/usr/local/lib")
    for folder in filter(None, (libdir, libpl, *standard)):
        if os.access(Path(folder, name), os.R_OK):
            return Path(folder, name)
    raise TritonSetupError(
        f"no shared {name} for {sys.executable}: install it (Debian, Ubuntu: libpython{PYTHON}; "
        "pyenv: rebuild with PYTHON_CONFIGURE_OPTS=--enable-shared), or use a Python that has it"
    )


def _installation_of_wheel() -> Installation:
    spec = find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise TritonSetupError(
            "no tritonserver on PATH and no nvidia-pytriton wheel, which supports only Linux on"
            f" x86-64; this is {platform.system()} on {platform.machine()}: run the container image"
            " instead"
        )
    numpy_version = metadata.version("numpy")
    if int(numpy_version.split(".")[0]) >= 2:
        # Its stub is built for NumPy 1: with NumPy 2 it silently returns arrays with strides of 0.
        raise TritonSetupError(
            f"the wheel's Triton needs numpy 1.26, this environment has {numpy_version}"
        )
    root = Path(next(iter(spec.submodule_search_locations)))
    server = root / "tritonserver"
    stubs = server / "python_backend_stubs"
    if not (stubs / PYTHON / STUB).is_file():
        names = sorted(
            (entry.name for entry in stubs.iterdir()), key=lambda name: int(name.split(".")[1])
        )
        raise TritonSetupError(
            f"the wheel's Triton supports Python {', '.join(names)}; this is Python {PYTHON}"
        )
    libraries = root.parent / "nvidia_pytriton.libs"
    return Installation(
        server / "bin" / LAUNCHER, server / "backends", libraries, stubs / PYTHON / STUB
    )


def _assemble(installation: Installation, parent: Path) -> Path:
    """Create the folder with launcher and backends, if needed; return it."""
    files = dict(_layout(installation))
    scripts = {
        LAUNCHER: _launcher_script(),
        PLAIN: _server_script(installation, own_backends=bool(files)),
    }
    state = [
        (name, str(target), target.stat().st_size, target.stat().st_mtime_ns)
        for name, target in files.items()
    ]
    digest = hashlib.sha256(repr((state, scripts)).encode()).hexdigest()[:16]
    home = parent / digest
    if (home / LAUNCHER).is_file():
        return home
    with building(home, home / LAUNCHER) as folder:
        for name, target in files.items():
            path = folder / "backends" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # Triton rejects a backend library with a real path outside of the backend's folder. The
            # stub finds its libraries only relative to its installed path.
            if target.is_file() and target.name != STUB:
                shutil.copy2(target, path)
            else:
                path.symlink_to(target)
        (folder / PLAIN).parent.mkdir()
        for name, script in scripts.items():
            (folder / name).write_text(script.replace("@HOME@", shlex.quote(str(home))))
            (folder / name).chmod(0o755)
    return home


def _missing_backends(installation: Installation) -> list[str]:
    python_based = {path.parent.name for path in PYTHON_BASED_BACKENDS.glob("*/model.py")}
    return sorted(python_based - installation.backend_names())


def _layout(installation: Installation) -> Iterator[tuple[str, Path]]:
    """Yield names in the assembled backend folder with their target files or folders.

    Yields nothing if the installation has all backends.
    """
    installed, missing = installation.backend_names(), _missing_backends(installation)
    if installation.stub is None and not missing:
        return
    for name in sorted(installed):
        if name == "python" and installation.stub is not None:
            for entry in sorted((installation.backends / name).iterdir()):
                if entry.is_file():
                    yield f"{name}/{entry.name}", entry
            yield f"{name}/{STUB}", installation.stub
        else:
            yield name, installation.backends / name
    for name in missing:
        yield name, PYTHON_BASED_BACKENDS / name


def _launcher_script() -> str:
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from utils.triton.watchdog.watchdog import main; sys.exit(main(sys.argv[1:]))"
    )
    return f"""#!/bin/sh
# Generated by utils/triton/installation.py: starts the watchdog, which runs the real server.
exec {shlex.quote(sys.executable)} -I -c {shlex.quote(program)} \\
    {shlex.quote(str(ROOT))} @HOME@/{PLAIN} "$@"
"""


def _server_script(installation: Installation, *, own_backends: bool) -> str:
    # Without a driver, Triton would log long warnings about GPU memory and GPU metrics.
    without_gpu = (
        ""
        if NVIDIA_DRIVER.exists()
        else " --pinned-memory-pool-byte-size=0 --allow-gpu-metrics=false"
    )
    libraries = [
        str(folder) for folder in (installation.libraries, shared_libpython().parent) if folder
    ]
    flag = " --backend-directory=@HOME@/backends" if own_backends else ""
    return f"""#!/bin/sh
# Generated by utils/triton/installation.py: sets the environment of Triton and its stubs, then
# starts the real server.
libraries={shlex.quote(os.pathsep.join(libraries))}
export LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
# The stub ignores PYTHONPATH and finds the environment through the first python3 on PATH.
export PATH={shlex.quote(str(Path(sys.prefix) / "bin"))}:"$PATH"
export MOBILE_SAM_ORCHESTRATOR_PATH={shlex.quote(str(ROOT))}
# The orchestrator runs the engines of these backends itself where that is faster.
export MOBILE_SAM_PYTHON_BACKENDS={shlex.quote(" ".join(_missing_backends(installation)))}
# ONNX Runtime sends usage data by default.
export ORT_DISABLE_TELEMETRY="${{ORT_DISABLE_TELEMETRY:-1}}"
exec {shlex.quote(str(installation.binary))}{flag}{without_gpu} "$@"
"""


def _is_launcher(candidate: Path) -> bool:
    with candidate.open("rb") as file:
        return b"Generated by utils/triton/installation.py" in file.read(200)
