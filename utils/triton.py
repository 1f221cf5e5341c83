"""The embedded Triton: which `tritonserver` runs, with which backends, environment and flags.

A `tritonserver` on PATH wins (NVIDIA's container). Else the one in the `nvidia-pytriton` wheel is used: its binary, its
Python backend and the stub of the running Python's minor version are linked into a folder of their own, together with
the Python-based backends of `triton_backends/`, which take the names and config keys of NVIDIA's C++ ones. Two scripts
lie there: `tritonserver`, which `bentoml` finds because `prepare()` puts the folder first on PATH, becomes the watchdog
(`utils.watch`); that one runs `server`, which sets the environment that only Triton needs and becomes the real binary.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shlex
import shutil
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from utils import traces, versions

LAUNCHER, SERVER = "tritonserver", "server"
STUB = "triton_python_backend_stub"
KEY_HEADER = "x-mobile-sam-triton-key"
RESTRICTED_APIS = "model-repository,model-config,shared-memory,statistics,trace,logging"
ROOT = Path(__file__).resolve().parent.parent
PYTHON_BASED_BACKENDS = ROOT / "triton_backends"
SHARED_MEMORY_REGION = 8 * 1024 * 1024
SHARED_MEMORY_NEEDED = 256 * 1024 * 1024
"""Bytes that should be free: a region for each of seven processes, and room for a few large images and answers."""
SHARED_MEMORY_SPARE = 32 * 1024 * 1024
"""Bytes that must stay free while it runs: two regions grow by a step each."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (the place Triton's Python backend uses; not a temporary file of ours)
NVIDIA_DRIVER = Path("/dev/nvidiactl")

SHM_PREFIX_VARIABLE = "MOBILE_SAM_TRITON_SHM_PREFIX"
METRICS_PORT_VARIABLE = "MOBILE_SAM_TRITON_METRICS_PORT"
_KEY_VARIABLE = "MOBILE_SAM_TRITON_KEY"
_SHM_PREFIX = "mobile_sam_triton_"


class TritonSetupError(RuntimeError):
    """Triton cannot be started here; the message is one line that says what is missing and what to do."""


@dataclass(frozen=True)
class Installation:
    """A Triton found on this machine."""

    binary: Path
    backends: Path
    """Folder of its own backends, a sub-folder each."""
    libraries: Path | None
    """Folder for `LD_LIBRARY_PATH`, where the installation needs one."""
    stub: Path | None
    """Stub of the running Python for the Python backend, where it does not lie in the backend's folder already."""

    def backend_names(self) -> set[str]:
        """Names of the backends it brings."""
        return {entry.name for entry in self.backends.iterdir() if entry.is_dir()} if self.backends.is_dir() else set()


def find_installation(path: str | None = None) -> Installation:
    """The Triton to use: a real one on PATH, else the wheel's.

    Args:
        path: a search path in place of `$PATH`.

    Raises:
        TritonSetupError: there is none for this platform or this Python.
    """
    for folder in (path if path is not None else os.environ.get("PATH", "")).split(os.pathsep):
        candidate = Path(folder or ".") / LAUNCHER
        if candidate.is_file() and os.access(candidate, os.X_OK) and not _is_launcher(candidate):
            binary = candidate.resolve()
            return Installation(binary, binary.parent.parent / "backends", None, None)
    return _installation_of_wheel()


def prepare(cache_dir: Path) -> Path:
    """Make a runnable Triton and put it first on PATH.

    Safe to call from several processes at once, and quick when everything is there already.

    Args:
        cache_dir: where the backends and the launcher are assembled, a folder per combination of Triton and Python.

    Returns:
        The `tritonserver` that `bentoml` will start.

    Raises:
        TritonSetupError: as `find_installation`, or there is no shared libpython, or the folder cannot be written.
    """
    found = find_installation()
    try:
        home = _assemble(found, cache_dir / "triton")
    except OSError as error:
        raise TritonSetupError(f"cannot write Triton's folder {cache_dir / 'triton'}: {error.strerror}") from error
    search = os.environ.get("PATH", "").split(os.pathsep)
    if str(home) not in search:
        os.environ["PATH"] = os.pathsep.join([str(home), *search])
    return home / LAUNCHER


def server_flags(control_mode: str = "none", *, auto_complete: bool = False) -> list[str]:
    """Command-line flags for `tritonserver`, beside those that BentoML adds (repository, HTTP port and address).

    The key of the restricted APIs, the shared-memory prefix and the metrics port are chosen once by the process that
    starts the service and inherited by its workers through the environment, so that all agree on them.

    Args:
        control_mode: when Triton loads models: `none`, `explicit` or `poll`.
        auto_complete: models may complete their own config.pbtxt.
    """
    key = restricted_header()[KEY_HEADER]
    prefix = _inherited(SHM_PREFIX_VARIABLE, f"{_SHM_PREFIX}{os.getpid()}_")
    _inherited(METRICS_PORT_VARIABLE, str(_free_port()))
    # Without a driver Triton warns at length of the GPU memory and the GPU metrics it cannot have.
    without_gpu = [] if NVIDIA_DRIVER.exists() else ["--pinned-memory-pool-byte-size=0", "--allow-gpu-metrics=false"]
    return [
        *without_gpu,
        "--allow-metrics=true",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={metrics_port()}",
        "--exit-timeout-secs=8",
        *([] if auto_complete else ["--disable-auto-complete-config"]),
        f"--model-control-mode={control_mode}",
        *(["--load-model=*"] if control_mode == "explicit" else []),
        *traces.triton_flags(),
        "--log-info=false",
        f"--http-restricted-api={RESTRICTED_APIS}:{KEY_HEADER}={key}",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        # By default regions start at 1 MB and grow by 1 MB a step: an image crosses in 3 MB, an answer in 4 and more.
        f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY_REGION}",
        f"--backend-config=python,shm-growth-byte-size={SHARED_MEMORY_REGION}",
    ]


def grpc_flags(port: int) -> list[str]:
    """Flags that open Triton's gRPC on a port of this machine; BentoML's own, which close it, must stand before them.

    Args:
        port: a free one.
    """
    return [
        "--allow-grpc=true",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={port}",
        *(f"--grpc-restricted-protocol={RESTRICTED_APIS}:{key}={value}" for key, value in restricted_header().items()),
    ]


def restricted_header() -> dict[str, str]:
    """What a request of one of Triton's restricted APIs must carry."""
    return {KEY_HEADER: _inherited(_KEY_VARIABLE, secrets.token_urlsafe(32))}


def metrics_port() -> int:
    """Where Triton shows its metrics, once `server_flags` has chosen."""
    return int(os.environ[METRICS_PORT_VARIABLE])


def check_shared_memory(folder: Path = SHARED_MEMORY) -> None:
    """Is there room for what Triton's Python processes exchange?

    Raises:
        TritonSetupError: the folder is too small or too full, as with a container's default of 64 MB.
    """
    free = shutil.disk_usage(folder).free if folder.is_dir() else 0
    if free < SHARED_MEMORY_NEEDED:
        raise TritonSetupError(
            f"{folder} has {free // 2**20} MiB free, {SHARED_MEMORY_NEEDED // 2**20} MiB are needed: "
            "enlarge it (docker run --shm-size=1g), or remove what fills it"
        )


def shared_memory_complaint(folder: Path = SHARED_MEMORY) -> str:
    """Return why there is no room for what Triton's Python processes may still exchange, or an empty text."""
    free = shutil.disk_usage(folder).free
    if free >= SHARED_MEMORY_SPARE:
        return ""
    return f"{folder} has {free // 2**20} MiB free, {SHARED_MEMORY_SPARE // 2**20} MiB are needed"


def check_repository(repository: Path) -> None:
    """Has the model repository what Triton will load from it?

    Raises:
        TritonSetupError: a file is missing.
    """
    for version in versions.versions(repository) or [1]:
        if absent := versions.missing(repository, version):
            command = "make weights" if version == 1 else f"python -m mobile_sam_onnx --version {version}"
            raise TritonSetupError(f"no {absent[0]}: `{command}` writes it")


def remove_stale_shared_memory(folder: Path = SHARED_MEMORY) -> list[Path]:
    """Delete shared-memory regions of services that were killed before Triton could remove its own.

    Returns:
        What was deleted: the regions of this project that no process uses.
    """
    regions = list(folder.glob(f"{_SHM_PREFIX}*")) if folder.is_dir() else []
    if not regions:
        return []
    used = "".join(_text(maps) for maps in Path("/proc").glob("[0-9]*/maps"))
    stale = [region for region in regions if str(region) not in used]
    return [region for region in stale if _removed(region)]


def shared_libpython() -> Path:
    """The `libpython3.X.so.1.0` that the Python backend's stub links to.

    Raises:
        TritonSetupError: this Python was built without one and none is installed beside it.
    """
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    configured = [sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LIBPL")]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    usual = [Path(sys.base_prefix) / "lib", Path("/usr/lib") / multiarch, Path("/usr/lib64"), Path("/usr/local/lib")]
    for folder in [*(Path(entry) for entry in configured if entry), *usual]:
        if (folder / name).is_file():
            return folder / name
    raise TritonSetupError(
        f"no shared {name} for {sys.executable}: install it (Debian, Ubuntu: libpython3.{sys.version_info.minor}; "
        "pyenv: rebuild with PYTHON_CONFIGURE_OPTS=--enable-shared), or use a Python that has it"
    )


def _installation_of_wheel() -> Installation:
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    spec = find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise TritonSetupError(
            "no tritonserver on PATH and no nvidia-pytriton wheel, which exists for Linux on x86-64 only; this is "
            f"{platform.system()} on {platform.machine()}: run the container image instead"
        )
    numpy_version = metadata.version("numpy")
    if int(numpy_version.split(".")[0]) >= 2:
        # Its stub is built for NumPy 1: with NumPy 2 it hands out arrays whose strides are 0, and says nothing.
        raise TritonSetupError(f"the wheel's Triton needs numpy 1.26, this environment has {numpy_version}")
    root = Path(next(iter(spec.submodule_search_locations)))
    server = root / "tritonserver"
    stub = server / "python_backend_stubs" / minor / STUB
    if not stub.is_file():
        have = sorted((entry.name for entry in stub.parent.parent.iterdir()), key=lambda name: int(name.split(".")[1]))
        raise TritonSetupError(f"the wheel's Triton supports Python {', '.join(have)}; this is Python {minor}")
    return Installation(
        server / "bin" / "tritonserver", server / "backends", root.parent / "nvidia_pytriton.libs", stub
    )


def _assemble(found: Installation, parent: Path) -> Path:
    """Build the folder with launcher and backends; returns it."""
    files = dict(_layout(found))
    scripts = {LAUNCHER: _launcher_script(), SERVER: _server_script(found, own_backends=bool(files))}
    state = [(name, str(target), target.stat().st_size, target.stat().st_mtime_ns) for name, target in files.items()]
    digest = hashlib.sha256(repr((state, scripts)).encode()).hexdigest()[:16]
    home = parent / digest
    if (home / LAUNCHER).is_file():
        return home
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    building = Path(tempfile.mkdtemp(dir=parent, prefix=".building-"))
    try:
        for name, target in files.items():
            place = building / "backends" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            # Triton refuses a backend library that resolves to a place outside of the backend's folder, and the stub
            # finds its own libraries only from where it was installed.
            if target.is_file() and target.name != STUB:
                shutil.copy2(target, place)
            else:
                place.symlink_to(target)
        for name, script in scripts.items():
            (building / name).write_text(script.replace("@HOME@", shlex.quote(str(home))))
            (building / name).chmod(0o755)
        try:
            building.rename(home)
        except OSError:
            if not (home / LAUNCHER).is_file():  # else another process was first with the same content
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return home


def _layout(found: Installation) -> Iterator[tuple[str, Path]]:
    """Pairs of a name in the assembled backend folder and the file or folder that goes there.

    None for an installation that needs nothing added.
    """
    own = found.backend_names()
    if found.libraries is None and {backend.name for backend in _python_based_backends()} <= own:
        return
    for name in sorted(own):
        if name == "python" and found.stub is not None:
            for entry in sorted((found.backends / name).iterdir()):
                if entry.is_file():
                    yield f"{name}/{entry.name}", entry
            yield f"{name}/{STUB}", found.stub
        else:
            yield name, found.backends / name
    for backend in _python_based_backends():
        if backend.name not in own:
            yield backend.name, backend


def _python_based_backends() -> list[Path]:
    return sorted(folder for folder in PYTHON_BASED_BACKENDS.iterdir() if (folder / "model.py").is_file())


def _launcher_script() -> str:
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from utils.watch.watchdog import main; sys.exit(main(sys.argv[1:]))"
    )
    return f"""#!/bin/sh
# Made by utils/triton.py: becomes the watchdog, which runs the real server.
exec {shlex.quote(sys.executable)} -I -c {shlex.quote(program)} {shlex.quote(str(ROOT))} @HOME@/{SERVER} "$@"
"""


def _server_script(found: Installation, *, own_backends: bool) -> str:
    libraries = [str(folder) for folder in (found.libraries, shared_libpython().parent) if folder]
    flag = " --backend-directory=@HOME@/backends" if own_backends else ""
    return f"""#!/bin/sh
# Made by utils/triton.py: sets what only Triton and its Python stubs need, then becomes the real server.
export LD_LIBRARY_PATH={shlex.quote(os.pathsep.join(libraries))}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
# The stub runs Python isolated, without PYTHONPATH: it finds the environment by the first python3 on PATH.
export PATH={shlex.quote(str(Path(sys.prefix) / "bin"))}:"$PATH"
# ONNX Runtime tells its makers of its use unless told otherwise.
export ORT_DISABLE_TELEMETRY="${{ORT_DISABLE_TELEMETRY:-1}}"
exec {shlex.quote(str(found.binary))}{flag} "$@"
"""


def _is_launcher(candidate: Path) -> bool:
    with candidate.open("rb") as file:
        return b"Made by utils/triton.py" in file.read(200)


def _removed(file: Path) -> bool:
    try:
        file.unlink(missing_ok=True)
    except PermissionError:  # another user's, on a folder that all may write to
        return False
    return True


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended, or is another user's
        return ""


def _inherited(variable: str, fresh: str) -> str:
    return os.environ.setdefault(variable, fresh)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
