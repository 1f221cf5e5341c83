"""Choice and setup of the Triton to run."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.small_disk import small_disk
from utils.triton import environment, installation
from utils.triton.installation import TritonSetupError

HAS_WHEEL = sys.platform == "linux" and os.uname().machine == "x86_64"
needs_wheel = pytest.mark.skipif(
    not HAS_WHEEL, reason="the nvidia-pytriton wheel supports only Linux on x86-64"
)


@pytest.fixture(autouse=True)
def restore_environment(monkeypatch):
    """Undo changes of environment variables by `prepare`."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def install_triton(folder: Path, *backends: str) -> Path:
    binary = folder / "opt" / "bin" / "tritonserver"
    binary.parent.mkdir(parents=True)
    binary.write_text('#!/bin/sh\necho "real $*"\necho "$MOBILE_SAM_PYTHON_BACKENDS" >&2\n')
    binary.chmod(0o755)
    for name in backends:
        (folder / "opt" / "backends" / name).mkdir(parents=True)
    os.environ["PATH"] = f"{binary.parent}:{os.environ['PATH']}"
    return binary


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("gpu", [True, False], ids=["with a GPU", "without a GPU"])
def test_a_triton_with_all_backends_is_used_unchanged_below_the_watchdog(
    gpu, tmp_path, monkeypatch
):
    monkeypatch.setattr(installation, "NVIDIA_DRIVER", Path("/dev/null" if gpu else "/dev/none"))
    install_triton(tmp_path, "python", "onnxruntime", "openvino")
    launcher = installation.prepare(tmp_path / "cache")
    plain = launcher.parent / installation.PLAIN
    flags = "" if gpu else "--pinned-memory-pool-byte-size=0 --allow-gpu-metrics=false "
    ran = subprocess.run([plain, "--flag"], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"real {flags}--flag\n", "\n")
    assert not (launcher.parent / "backends").exists()
    plain.unlink()
    started = subprocess.run(
        [launcher, "--flag"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert (started.returncode, started.stderr) == (
        1,
        f"error: {plain} is missing or not executable\n",
    )


def test_missing_backends_are_added_to_a_triton_on_path_for_the_shell_commands_too(
    tmp_path, monkeypatch
):
    binary = install_triton(tmp_path, "python", "tensorrt")
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "a cache"))
    script = environment.commands() + "; tritonserver --flag; command -v python"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    started, python = done.stdout.splitlines()
    assert done.stderr == "onnxruntime openvino\n"
    backends = next((tmp_path / "a cache").rglob("backends"))
    assert started.startswith(f"real --backend-directory={backends} ")
    assert started.endswith(" --flag")
    assert sorted(entry.name for entry in backends.iterdir()) == [
        "onnxruntime",
        "openvino",
        "python",
        "tensorrt",
    ]
    assert (backends / "onnxruntime" / "model.py").is_file()
    assert python == f"{sys.prefix}/bin/python"
    monkeypatch.setenv(
        "PATH", f"{(backends.parent / installation.PLAIN).parent}:{os.environ['PATH']}"
    )
    assert installation.find_installation().binary == binary


@needs_wheel
def test_the_wheels_triton_gets_the_stub_of_this_python(tmp_path):
    launcher = installation.prepare(tmp_path)
    python = launcher.parent / "backends" / "python"
    assert (python / installation.STUB).resolve().parent.name == installation.PYTHON
    assert not (python / "libtriton_python.so").is_symlink()
    assert "--model-repository" in output(
        "sh", "-c", '"$0" --help 2>&1 || true', launcher.parent / installation.PLAIN
    )


@needs_wheel
def test_prepare_is_idempotent_also_in_concurrent_processes(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\nfrom pathlib import Path\n"
    code += (
        "from utils.triton import"
        f" installation\nprint(installation.prepare(Path({str(tmp_path)!r})))"
    )
    jobs = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    (launcher,) = {Path(job.communicate()[0].strip()) for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    before = launcher.stat().st_mtime_ns
    for _ in range(2):
        assert installation.prepare(tmp_path) == launcher
    assert launcher.stat().st_mtime_ns == before
    assert os.environ["PATH"].split(":").count(str(launcher.parent)) == 1
    assert [entry.name for entry in (tmp_path / "triton").iterdir()] == [launcher.parent.name]


@needs_wheel
@pytest.mark.parametrize(
    ("patched", "value", "message"),
    [
        pytest.param(
            "find_spec",
            lambda _: None,
            "no tritonserver on PATH and no nvidia-pytriton wheel",
            id="wheel",
        ),
        pytest.param(
            "metadata.version",
            lambda _: "2.1.0",
            r"needs numpy 1\.26, this environment has 2",
            id="NumPy 2",
        ),
        pytest.param(
            "PYTHON",
            "3.99",
            r"supports Python 3\.8, .*3\.12, .*; this is Python 3\.99",
            id="Python",
        ),
    ],
)
def test_a_triton_that_cannot_run_is_an_error(monkeypatch, patched, value, message):
    monkeypatch.setattr(f"utils.triton.installation.{patched}", value)
    with pytest.raises(TritonSetupError, match=message):
        installation.find_installation()


def test_a_missing_libpython_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr("utils.triton.installation.os.access", lambda *_: False)
    with pytest.raises(
        TritonSetupError, match=rf"Debian, Ubuntu: libpython3\.{sys.version_info.minor}"
    ):
        installation.shared_libpython()


def test_a_disk_without_executable_files_is_a_one_line_error(tmp_path):
    install_triton(tmp_path, "python")
    with (
        small_disk(tmp_path / "disk", 1, "noexec") as disk,
        pytest.raises(TritonSetupError, match="without noexec"),
    ):
        installation.prepare(disk)


@needs_wheel
def test_a_changed_triton_gets_a_new_folder(tmp_path):
    first = installation.find_installation()
    backends = tmp_path / "backends"
    shutil.copytree(first.backends, backends)
    older = installation._assemble(replace(first, backends=backends), tmp_path / "home")
    (backends / "python" / "libtriton_python.so").write_bytes(b"newer")
    newer = installation._assemble(replace(first, backends=backends), tmp_path / "home")
    assert newer != older
    assert (newer / "backends" / "python" / "libtriton_python.so").read_bytes() == b"newer"


def test_building_keeps_the_complete_folder_of_another_process(tmp_path):
    home = tmp_path / "home"
    with installation.building(home, home / "theirs") as folder:
        (folder / "ours").touch()
        home.mkdir()
        (home / "theirs").touch()
    assert list(tmp_path.rglob("*")) == [home, home / "theirs"]
    with pytest.raises(OSError, match="not empty"), installation.building(home, home / "ours"):
        pass
    assert list(tmp_path.iterdir()) == [home]
