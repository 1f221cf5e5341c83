"""Detection of the usable resources of a machine."""

import os
from importlib import metadata
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from utils.triton.installation import TritonSetupError
from utils.triton.machine import can_use_gpus, count_gpus, has_bf16, this_machine, usable_cores


@pytest.fixture
def many_cores(monkeypatch):
    """A machine with 16 physical cores and 32 hardware threads."""
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 32 if logical else 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))


@pytest.mark.parametrize(("affinity", "cores"), [(range(32), 16), ({3, 4, 5}, 3)], ids=["all", "three"])
def test_physical_cores_of_the_cpu_affinity_count(many_cores, monkeypatch, tmp_path, affinity, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(affinity))
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000"}, 16),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "10000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
    ],
    ids=str,
)
def test_cgroup_quota_limits_the_cores(many_cores, tmp_path, files, cores):
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_cores(tmp_path) == cores


def test_logical_cpus_count_if_physical_cores_are_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    assert usable_cores(tmp_path) == 6


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse avx512f avx512_bf16 avx512_vnni", True),
        ("fpu amx_tile amx_bf16", True),
        ("fpu sse avx512f not_avx512_bf16", False),
        ("", False),
    ],
)
def test_bfloat16_is_detected_by_cpu_flags(tmp_path, flags, expected):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: avx512_bf16\n")
    assert has_bf16(tmp_path / "cpuinfo") is expected
    assert has_bf16(tmp_path / "no such file") is False


def test_no_gpus_without_nvidia_driver(monkeypatch):
    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert count_gpus() == 0


@pytest.mark.parametrize(
    ("visible", "gpus"), [(None, 4), ("", 0), ("-1", 0), ("0", 1), ("1,2", 2), ("0,1,2,3,4,5", 4), ("GPU-8f2a", 1)]
)
def test_gpus_are_counted_by_the_driver_and_limited_by_cuda_visible_devices(monkeypatch, visible, gpus):
    closed = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 4)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: closed.append(True))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus() == gpus
    assert closed or not gpus


@pytest.mark.parametrize(
    ("packages", "backends", "expected"),
    [
        pytest.param({"onnxruntime-gpu"}, set(), True, id="package"),
        pytest.param({"onnxruntime"}, {"python", "onnxruntime"}, True, id="NVIDIA's container"),
        pytest.param({"onnxruntime"}, {"python"}, False, id="CPU only"),
        pytest.param(set(), None, False, id="no Triton"),
    ],
)
def test_gpus_need_an_onnxruntime_with_gpu_support(monkeypatch, packages, backends, expected):
    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    def find() -> SimpleNamespace:
        if backends is None:
            raise TritonSetupError("none")
        return SimpleNamespace(backend_names=lambda: backends)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr("utils.triton.machine.installation.find_installation", find)
    assert can_use_gpus() is expected


def test_this_machine_has_a_core():
    assert this_machine().cores >= 1
