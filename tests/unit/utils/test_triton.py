"""Choice and setup of the Triton to run."""

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
needs_wheel = pytest.mark.skipif(not HAS_WHEEL, reason="the nvidia-pytriton wheel supports only Linux on x86-64")


@pytest.fixture(autouse=True)
def restore_environment(monkeypatch):
    """Undo changes of environment variables by `prepare` and `server_flags`."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("KEY", "SHM_PREFIX", "METRICS_PORT"):
        monkeypatch.delenv(f"MOBILE_SAM_TRITON_{name}", raising=False)
        monkeypatch.setattr(os, "environ", os.environ.copy())


def install_triton(folder: Path, *backends: str) -> Path:
    binary = folder / "opt" / "bin" / "tritonserver"
    binary.parent.mkdir(parents=True)
    binary.write_text('#!/bin/sh\necho "real $*"\n')
    binary.chmod(0o755)
    for name in backends:
        (folder / "opt" / "backends" / name).mkdir(parents=True)
    os.environ["PATH"] = f"{binary.parent}:{os.environ['PATH']}"
    return binary


def test_a_triton_on_path_is_preferred_to_the_wheel(tmp_path):
    binary = install_triton(tmp_path, "python", "onnxruntime")
    found = triton.find_installation()
    assert found.binary == binary
    assert found.backend_names() == {"python", "onnxruntime"}


def run_server(launcher: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the server script without the watchdog."""
    server = launcher.with_name(triton.SERVER)
    return subprocess.run([server, *arguments], capture_output=True, text=True, check=False)


def test_a_triton_with_all_backends_is_used_unchanged(tmp_path):
    install_triton(tmp_path, "python", "onnxruntime", "openvino")
    launcher = triton.prepare(tmp_path / "cache")
    assert run_server(launcher, "--flag").stdout == "real --flag\n"
    assert not (launcher.parent / "backends").exists()


def test_the_launcher_starts_the_watchdog(tmp_path):
    install_triton(tmp_path, "python", "onnxruntime", "openvino")
    launcher = triton.prepare(tmp_path / "cache")
    launcher.with_name(triton.SERVER).unlink()
    started = subprocess.run([launcher, "--flag"], capture_output=True, text=True, check=False, cwd="/")
    assert started.returncode == 1
    assert started.stderr == f"error: {launcher.with_name(triton.SERVER)} is missing or not executable\n"


def test_missing_backends_are_added_to_a_triton_on_path(tmp_path):
    install_triton(tmp_path, "python", "tensorrt")
    launcher = triton.prepare(tmp_path / "cache")
    backends = launcher.parent / "backends"
    assert sorted(entry.name for entry in backends.iterdir()) == ["onnxruntime", "openvino", "python", "tensorrt"]
    assert (backends / "onnxruntime" / "model.py").is_file()
    assert run_server(launcher, "--flag").stdout == f"real --backend-directory={backends} --flag\n"


@needs_wheel
def test_the_wheels_triton_gets_the_stub_of_this_python(tmp_path):
    launcher = triton.prepare(tmp_path)
    python = launcher.parent / "backends" / "python"
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (python / triton.STUB).resolve().parent.name == minor
    assert not (python / "libtriton_python.so").is_symlink()
    completed = run_server(launcher, "--help")
    assert "--model-repository" in completed.stdout + completed.stderr


@needs_wheel
def test_prepare_is_idempotent(tmp_path):
    first = triton.prepare(tmp_path)
    before = first.stat().st_mtime_ns
    assert triton.prepare(tmp_path) == first
    assert first.stat().st_mtime_ns == before
    assert os.environ["PATH"].split(":").count(str(first.parent)) == 1
    assert [entry.name for entry in (tmp_path / "triton").iterdir()] == [first.parent.name]


@needs_wheel
def test_concurrent_prepare_calls_return_the_same_folder(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\nfrom pathlib import Path\n"
    code += f"from utils import triton\nprint(triton.prepare(Path({str(tmp_path)!r})))"
    jobs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    launchers = {job.communicate()[0] for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    assert len(launchers) == 1


def test_a_missing_triton_is_an_error(monkeypatch):
    monkeypatch.setattr(triton, "find_spec", lambda _: None)
    with pytest.raises(TritonSetupError, match="no tritonserver on PATH and no nvidia-pytriton wheel"):
        triton.find_installation()


@needs_wheel
def test_the_wheels_triton_rejects_numpy_2(monkeypatch):
    monkeypatch.setattr("utils.triton.metadata.version", lambda _: "2.1.0")
    with pytest.raises(TritonSetupError, match=r"needs numpy 1\.26, this environment has 2\.1\.0"):
        triton.find_installation()


def test_a_missing_libpython_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr("utils.triton.sysconfig.get_config_var", lambda _: None)
    monkeypatch.setattr("utils.triton.sys.base_prefix", "/nowhere")
    monkeypatch.setattr(Path, "is_file", lambda _: False)
    with pytest.raises(TritonSetupError, match=rf"Debian, Ubuntu: libpython3\.{sys.version_info.minor}"):
        triton.shared_libpython()


def test_an_unwritable_folder_is_a_one_line_error(tmp_path):
    install_triton(tmp_path, "python")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TritonSetupError, match=r"cannot write Triton's folder .*: Not a directory"):
        triton.prepare(blocked)


def test_flags_bind_loopback_and_restrict_control_apis():
    flags = triton.server_flags()
    assert "--metrics-address=127.0.0.1" in flags
    restricted = next(flag for flag in flags if flag.startswith("--http-restricted-api="))
    apis, key = restricted.removeprefix("--http-restricted-api=").split(":", 1)
    assert {"model-repository", "shared-memory", "logging"} <= set(apis.split(","))
    header, secret = key.split("=", 1)
    assert header == triton.KEY_HEADER
    assert len(secret) >= 32


def test_auto_complete_is_off_by_default():
    flag = "--disable-auto-complete-config"
    assert flag in triton.server_flags()
    assert flag not in triton.server_flags(auto_complete=True)


def test_grpc_flags_bind_loopback_and_restrict_control_apis():
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


def test_remove_stale_shared_memory_keeps_regions_in_use(tmp_path):
    for name in ("mobile_sam_triton_1_dead", "mobile_sam_triton_1_running", "unrelated"):
        (tmp_path / name).write_bytes(bytes(4096))
    with (tmp_path / "mobile_sam_triton_1_running").open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        removed = triton.remove_stale_shared_memory(tmp_path)
    assert [region.name for region in removed] == ["mobile_sam_triton_1_dead"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"mobile_sam_triton_1_running", "unrelated"}


def test_remove_stale_shared_memory_skips_regions_of_other_users(monkeypatch, tmp_path):
    for name in ("mobile_sam_triton_1_mine", "mobile_sam_triton_1_theirs"):
        (tmp_path / name).touch()
    unlink = Path.unlink

    def unlink_unless_theirs(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith("theirs"):
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_unless_theirs)
    assert [region.name for region in triton.remove_stale_shared_memory(tmp_path)] == ["mobile_sam_triton_1_mine"]


def test_too_little_shared_memory_error_names_the_remedy(monkeypatch, tmp_path):
    triton.check_shared_memory()
    monkeypatch.setattr("utils.triton.shutil.disk_usage", lambda _: SimpleNamespace(free=63 * 2**20))
    with pytest.raises(TritonSetupError, match=r"63 MiB free, 256 MiB are needed: .*--shm-size=1g"):
        triton.check_shared_memory()


def test_shared_memory_problem_reports_little_free_space(monkeypatch):
    monkeypatch.setattr("utils.triton.shutil.disk_usage", lambda _: SimpleNamespace(free=32 * 2**20))
    assert triton.shared_memory_problem() == ""
    monkeypatch.setattr("utils.triton.shutil.disk_usage", lambda _: SimpleNamespace(free=31 * 2**20))
    assert triton.shared_memory_problem() == "/dev/shm has 31 MiB free, 32 MiB are needed"


def test_a_repository_without_models_is_an_error(tmp_path):
    with pytest.raises(TritonSetupError, match=r"model\.onnx: no such file; `make weights` writes it"):
        triton.check_repository(tmp_path)


@needs_wheel
def test_a_changed_triton_gets_a_new_folder(tmp_path):
    first = triton.find_installation()
    backends = tmp_path / "backends"
    shutil.copytree(first.backends, backends)
    older = triton._assemble(replace(first, backends=backends), tmp_path / "home")
    (backends / "python" / "libtriton_python.so").write_bytes(b"newer")
    newer = triton._assemble(replace(first, backends=backends), tmp_path / "home")
    assert newer != older
    assert (newer / "backends" / "python" / "libtriton_python.so").read_bytes() == b"newer"
