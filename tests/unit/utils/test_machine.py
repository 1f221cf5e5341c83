"""What this process may use of the machine."""

from __future__ import annotations

import os
from importlib import metadata
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from utils.machine import can_use_gpus, count_gpus, has_bf16, this_machine, usable_cores
from utils.triton import TritonSetupError


@pytest.fixture
def many_cores(monkeypatch):
    """A machine of 16 cores with two hardware threads each, all of them allowed."""
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 32 if logical else 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))


def test_without_a_limit_every_physical_core_counts(many_cores, tmp_path):
    assert usable_cores(tmp_path) == 16


def test_a_process_bound_to_some_processors_has_only_those(many_cores, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 4, 5})
    assert usable_cores(tmp_path) == 3


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 16), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1)]
)
def test_a_containers_quota_is_kept(many_cores, tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 16), ("400000", 4)])
def test_the_older_kind_of_quota_is_kept_too(many_cores, tmp_path, quota, cores):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path) == cores


def test_a_machine_that_cannot_tell_its_physical_cores_has_its_processors(monkeypatch, tmp_path):
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
def test_bfloat16_is_seen_by_the_processors_flags(tmp_path, flags, expected):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: avx512_bf16\n")
    assert has_bf16(tmp_path / "cpuinfo") is expected


def test_a_machine_without_cpuinfo_has_no_bfloat16(tmp_path):
    assert has_bf16(tmp_path / "cpuinfo") is False


def test_a_machine_without_nvidias_driver_has_no_gpu(monkeypatch):
    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert count_gpus() == 0


def test_gpus_are_those_that_the_driver_shows(monkeypatch):
    closed = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: closed.append(True))
    assert count_gpus() == 2
    assert closed


@pytest.mark.parametrize(
    ("visible", "gpus"), [(None, 4), ("", 0), ("-1", 0), ("0", 1), ("1,2", 2), ("0,1,2,3,4,5", 4), ("GPU-8f2a", 1)]
)
def test_gpus_that_cuda_is_told_not_to_see_do_not_count(monkeypatch, visible, gpus):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 4)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus() == gpus


@pytest.mark.parametrize(
    ("packages", "backends", "expected"),
    [
        pytest.param({"onnxruntime-gpu"}, set(), True, id="package"),
        pytest.param({"onnxruntime"}, {"python", "onnxruntime"}, True, id="nvidia's container"),
        pytest.param({"onnxruntime"}, {"python"}, False, id="processors only"),
        pytest.param(set(), None, False, id="no triton"),
    ],
)
def test_gpus_count_where_something_can_use_them(monkeypatch, packages, backends, expected):
    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    def find() -> SimpleNamespace:
        if backends is None:
            raise TritonSetupError("none")
        return SimpleNamespace(backend_names=lambda: backends)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr("utils.triton.find_installation", find)
    assert can_use_gpus() is expected


def test_this_machine_has_a_core():
    assert this_machine().cores >= 1
