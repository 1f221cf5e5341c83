"""Finding a Triton and making it runnable."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from utils import triton
from utils.triton import TritonSetupError

HAS_WHEEL = sys.platform == "linux" and os.uname().machine == "x86_64"
needs_wheel = pytest.mark.skipif(not HAS_WHEEL, reason="the nvidia-pytriton wheel exists for Linux on x86-64 only")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """What `prepare` and `server_flags` write into the environment is taken back."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("KEY", "SHM_PREFIX", "METRICS_PORT"):
        monkeypatch.delenv(f"MOBILE_SAM_TRITON_{name}", raising=False)
        monkeypatch.setattr(os, "environ", os.environ.copy())


def foreign_triton(folder: Path, *backends: str) -> Path:
    binary = folder / "opt" / "bin" / "tritonserver"
    binary.parent.mkdir(parents=True)
    binary.write_text('#!/bin/sh\necho "real $*"\n')
    binary.chmod(0o755)
    for name in backends:
        (folder / "opt" / "backends" / name).mkdir(parents=True)
    os.environ["PATH"] = f"{binary.parent}:{os.environ['PATH']}"
    return binary


def test_a_triton_on_path_wins_over_the_wheel(tmp_path):
    binary = foreign_triton(tmp_path, "python", "onnxruntime")
    found = triton.find_installation()
    assert found.binary == binary
    assert found.backend_names() == {"python", "onnxruntime"}


def run_server(launcher: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the watchdog runs, without the watchdog."""
    server = launcher.with_name(triton.SERVER)
    return subprocess.run([server, *arguments], capture_output=True, text=True, check=False)


def test_a_triton_with_its_own_backends_is_used_as_it_is(tmp_path):
    foreign_triton(tmp_path, "python", "onnxruntime", "openvino")
    launcher = triton.prepare(tmp_path / "cache")
    assert run_server(launcher, "--flag").stdout == "real --flag\n"
    assert not (launcher.parent / "backends").exists()


def test_the_launcher_is_the_watchdog(tmp_path):
    foreign_triton(tmp_path, "python", "onnxruntime", "openvino")
    launcher = triton.prepare(tmp_path / "cache")
    launcher.with_name(triton.SERVER).unlink()
    started = subprocess.run([launcher, "--flag"], capture_output=True, text=True, check=False, cwd="/")
    assert started.returncode == 1
    assert started.stderr == f"error: {launcher.with_name(triton.SERVER)} is missing or not executable\n"


def test_a_triton_without_them_gets_the_python_based_backends(tmp_path):
    foreign_triton(tmp_path, "python", "tensorrt")
    launcher = triton.prepare(tmp_path / "cache")
    backends = launcher.parent / "backends"
    assert sorted(entry.name for entry in backends.iterdir()) == ["onnxruntime", "openvino", "python", "tensorrt"]
    assert (backends / "onnxruntime" / "model.py").is_file()
    assert run_server(launcher, "--flag").stdout == f"real --backend-directory={backends} --flag\n"


@needs_wheel
def test_the_wheels_triton_is_assembled_with_the_stub_of_this_python(tmp_path):
    launcher = triton.prepare(tmp_path)
    python = launcher.parent / "backends" / "python"
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (python / triton.STUB).resolve().parent.name == minor
    assert not (python / "libtriton_python.so").is_symlink()
    helped = run_server(launcher, "--help")
    assert "--model-repository" in helped.stdout + helped.stderr


@needs_wheel
def test_preparing_again_changes_nothing(tmp_path):
    first = triton.prepare(tmp_path)
    before = first.stat().st_mtime_ns
    assert triton.prepare(tmp_path) == first
    assert first.stat().st_mtime_ns == before
    assert os.environ["PATH"].split(":").count(str(first.parent)) == 1
    assert [entry.name for entry in (tmp_path / "triton").iterdir()] == [first.parent.name]


@needs_wheel
def test_processes_that_prepare_at_once_agree(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\nfrom pathlib import Path\n"
    code += f"from utils import triton\nprint(triton.prepare(Path({str(tmp_path)!r})))"
    jobs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {job.communicate()[0] for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    assert len(answers) == 1


def test_without_a_triton_the_error_says_where_there_is_one(monkeypatch):
    monkeypatch.setattr(triton, "find_spec", lambda _: None)
    with pytest.raises(TritonSetupError, match="no tritonserver on PATH and no nvidia-pytriton wheel"):
        triton.find_installation()


@needs_wheel
def test_numpy_2_is_refused_for_the_wheels_triton(monkeypatch):
    monkeypatch.setattr("utils.triton.metadata.version", lambda _: "2.1.0")
    with pytest.raises(TritonSetupError, match=r"needs numpy 1\.26, this environment has 2\.1\.0"):
        triton.find_installation()


def test_a_python_without_a_shared_library_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr("utils.triton.sysconfig.get_config_var", lambda _: None)
    monkeypatch.setattr("utils.triton.sys.base_prefix", "/nowhere")
    monkeypatch.setattr(Path, "is_file", lambda _: False)
    with pytest.raises(TritonSetupError, match=rf"Debian, Ubuntu: libpython3\.{sys.version_info.minor}"):
        triton.shared_libpython()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    foreign_triton(tmp_path, "python")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TritonSetupError, match=r"cannot write Triton's folder .*: Not a directory"):
        triton.prepare(blocked)


def test_flags_keep_triton_on_loopback_and_its_control_behind_a_key():
    flags = triton.server_flags()
    assert "--metrics-address=127.0.0.1" in flags
    restricted = next(flag for flag in flags if flag.startswith("--http-restricted-api="))
    apis, key = restricted.removeprefix("--http-restricted-api=").split(":", 1)
    assert {"model-repository", "shared-memory", "logging"} <= set(apis.split(","))
    header, secret = key.split("=", 1)
    assert header == triton.KEY_HEADER
    assert len(secret) >= 32


def test_models_complete_their_configuration_only_where_they_are_let():
    flag = "--disable-auto-complete-config"
    assert flag in triton.server_flags()
    assert flag not in triton.server_flags(auto_complete=True)


def test_grpc_stays_on_loopback_and_its_control_behind_the_same_key():
    flags = triton.grpc_flags(8001)
    assert {"--allow-grpc=true", "--grpc-address=127.0.0.1", "--grpc-port=8001"} <= set(flags)
    over_http = next(flag for flag in triton.server_flags() if flag.startswith("--http-restricted-api="))
    assert over_http.replace("--http-restricted-api=", "--grpc-restricted-protocol=") in flags


def test_workers_inherit_key_prefix_and_port():
    assert triton.server_flags() == triton.server_flags()


def test_two_services_have_different_keys():
    first = triton.server_flags()
    for name in ("KEY", "SHM_PREFIX", "METRICS_PORT"):
        del os.environ[f"MOBILE_SAM_TRITON_{name}"]
    assert set(triton.server_flags()) != set(first)


def test_shared_memory_of_dead_services_is_removed_and_of_living_ones_kept(tmp_path):
    for name in ("mobile_sam_triton_1_dead", "mobile_sam_triton_1_living", "someone_elses"):
        (tmp_path / name).write_bytes(bytes(4096))
    with (tmp_path / "mobile_sam_triton_1_living").open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        removed = triton.remove_stale_shared_memory(tmp_path)
    assert [region.name for region in removed] == ["mobile_sam_triton_1_dead"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"mobile_sam_triton_1_living", "someone_elses"}


def test_stale_regions_of_another_user_are_left_alone(monkeypatch, tmp_path):
    for name in ("mobile_sam_triton_1_mine", "mobile_sam_triton_1_theirs"):
        (tmp_path / name).touch()
    unlink = Path.unlink

    def as_the_kernel_does(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith("theirs"):
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", as_the_kernel_does)
    assert [region.name for region in triton.remove_stale_shared_memory(tmp_path)] == ["mobile_sam_triton_1_mine"]


def test_too_little_shared_memory_is_one_line_that_says_what_helps(monkeypatch, tmp_path):
    triton.check_shared_memory()
    monkeypatch.setattr("utils.triton.shutil.disk_usage", lambda _: SimpleNamespace(free=63 * 2**20))
    with pytest.raises(TritonSetupError, match=r"63 MiB free, 256 MiB are needed: .*--shm-size=1g"):
        triton.check_shared_memory()


def test_shared_memory_that_fills_while_it_runs_is_told(monkeypatch):
    monkeypatch.setattr("utils.triton.shutil.disk_usage", lambda _: SimpleNamespace(free=32 * 2**20))
    assert triton.shared_memory_problem() == ""
    monkeypatch.setattr("utils.triton.shutil.disk_usage", lambda _: SimpleNamespace(free=31 * 2**20))
    assert triton.shared_memory_problem() == "/dev/shm has 31 MiB free, 32 MiB are needed"


def test_a_repository_without_models_is_one_line(tmp_path):
    with pytest.raises(TritonSetupError, match=r"model\.onnx: no such file; `make weights` writes it"):
        triton.check_repository(tmp_path)


@needs_wheel
def test_a_newer_triton_is_assembled_anew(tmp_path):
    first = triton.find_installation()
    changed = tmp_path / "backends"
    shutil.copytree(first.backends, changed)
    older = triton._assemble(replace(first, backends=changed), tmp_path / "home")
    (changed / "python" / "libtriton_python.so").write_bytes(b"newer")
    newer = triton._assemble(replace(first, backends=changed), tmp_path / "home")
    assert newer != older
    assert (newer / "backends" / "python" / "libtriton_python.so").read_bytes() == b"newer"
