"""Detection of the usable resources of a machine."""

import os
from importlib import metadata
from types import SimpleNamespace
from unittest import mock

import psutil
import pynvml
import pytest

from utils.triton.installation import Installation, TritonSetupError
from utils.triton.machine import can_use_gpus, gpu_memories, has_bf16, usable_cores, usable_memory


@pytest.mark.parametrize(
    ("files", "affinity", "cores"),
    [
        ({}, 32, 16),
        ({}, 3, 3),
        ({"cpu.max": "max 100000"}, 32, 16),
        ({"cpu.max": "200000 100000"}, 32, 2),
        ({"cpu.max": "150000 100000"}, 32, 2),
        ({"cpu.max": "10000 100000"}, 32, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 32, 16),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 32, 4),
    ],
    ids=str,
)
def test_usable_cores_are_the_physical_ones_within_affinity_and_cgroup_quota(
    monkeypatch, tmp_path, files, affinity, cores
):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 32 if logical else 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("memory.max", "max", 2**35),
        ("memory.max", "7516192768", 7 * 2**30),
        ("memory/memory.limit_in_bytes", "9223372036854771712", 2**35),
        ("memory/memory.limit_in_bytes", "1073741824", 2**30),
        ("no limit", "1", 2**35),
    ],
)
def test_usable_memory_is_the_machines_within_the_cgroups_limit(
    monkeypatch, tmp_path, name, text, expected
):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: mock.Mock(total=2**35))
    (tmp_path / "memory").mkdir()
    (tmp_path / name).write_text(f"{text}\n")
    assert usable_memory(tmp_path) == expected


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
    (tmp_path / "cpuinfo").write_text(
        f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: avx512_bf16\n"
    )
    assert has_bf16(tmp_path / "cpuinfo") is expected
    assert has_bf16(tmp_path / "no such file") is False


UUIDS = ("GPU-8f2a-1", "GPU-9b00-2", "GPU-9b11-3", "GPU-77aa-4")
"""GPUs of 1 to 4 GiB; the last one has a slice of 256 MiB."""
SLICE = "MIG-5"


def handle_by_index(index: int) -> str:
    if index >= len(UUIDS):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return UUIDS[index]


def handle_by_uuid(uuid: str) -> str:
    if uuid not in (*UUIDS, SLICE):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    return uuid


def slice_of(handle: str, _index: int) -> str:
    if handle != UUIDS[-1]:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return SLICE


def memory_of(handle: str) -> SimpleNamespace:
    return SimpleNamespace(total=2**28 if handle == SLICE else 2**30 * (1 + UUIDS.index(handle)))


DRIVER = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: len(UUIDS),
    "nvmlDeviceGetUUID": str,
    "nvmlDeviceGetHandleByIndex": handle_by_index,
    "nvmlDeviceGetHandleByUUID": handle_by_uuid,
    "nvmlDeviceGetMigDeviceHandleByIndex": slice_of,
    "nvmlDeviceGetMemoryInfo": memory_of,
}


@pytest.mark.parametrize(
    ("visible", "mebibytes"),
    [
        pytest.param(None, (1024, 2048, 3072, 256), id="all"),
        pytest.param("", (), id="none"),
        pytest.param("-1", (), id="hidden"),
        pytest.param("NoDevFiles", (), id="hidden by a container"),
        pytest.param("0", (1024,), id="the first"),
        pytest.param("2, 1", (3072, 2048), id="two in another order"),
        pytest.param("0,7,1", (1024,), id="an unknown one hides those after it"),
        pytest.param("0,1,2,3,4,5", (1024, 2048, 3072, 256), id="more than there are"),
        pytest.param("GPU-8f2a", (1024,), id="the start of a UUID"),
        pytest.param("GPU-9b11-3", (3072,), id="a UUID"),
        pytest.param("MIG-5", (256,), id="a slice"),
    ],
)
def test_gpus_are_those_that_the_driver_and_cuda_visible_devices_show(
    monkeypatch, visible, mebibytes
):
    for name, function in DRIVER.items():
        monkeypatch.setattr(pynvml, name, function)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_memories() == tuple(size * 2**20 for size in mebibytes)
    monkeypatch.setattr(pynvml, "nvmlInit", mock.Mock(side_effect=pynvml.NVMLError_LibraryNotFound))
    assert gpu_memories() == ()


@pytest.mark.parametrize(
    ("package", "backends", "expected"),
    [
        pytest.param(True, [], True, id="package"),
        pytest.param(False, ["python", "onnxruntime"], True, id="NVIDIA's container"),
        pytest.param(False, ["python"], False, id="CPU only"),
        pytest.param(False, None, False, id="no Triton"),
    ],
)
def test_gpus_need_an_onnxruntime_with_gpu_support(
    monkeypatch, tmp_path, package, backends, expected
):
    for name in backends or []:
        (tmp_path / name).mkdir()
    found = mock.Mock(side_effect=TritonSetupError("none"))
    if backends is not None:
        found = mock.Mock(return_value=Installation(tmp_path, tmp_path))
    monkeypatch.setattr("utils.triton.machine.installation.find_installation", found)
    monkeypatch.setattr(metadata, "distributions", lambda name: [name] if package else [])
    assert can_use_gpus() is expected
