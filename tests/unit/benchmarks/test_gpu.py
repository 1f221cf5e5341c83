"""Goals on a GPU, and the refusal to write a GPU's page without one."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks import gpu
from benchmarks.arms import Turn
from benchmarks.loops import Cells
from benchmarks.report import check_blocks
from utils.triton.machine import this_machine


@pytest.mark.parametrize(
    ("seconds", "everything", "met"),
    [
        pytest.param(0.025, 120.0, ["met", "missed", "met", "met"], id="slow known images"),
        pytest.param(0.008, 121.0, ["met", "met", "met", "missed"], id="slow grid"),
        pytest.param(0.026, 120.0, ["missed", "missed", "missed", "met"], id="slow new images"),
    ],
)
def test_goals_are_met_or_missed(seconds, everything, met):
    callers = {cell: Turn([seconds] * 4, 4 * seconds / (2.5 if cell == gpu.TOGETHER else 1)) for cell in gpu.REQUESTS}
    table = gpu.goals_table(Cells({cell: [turn] for cell, turn in callers.items()}), everything)
    assert [row.split("|")[-2].strip() for row in table.splitlines()[2:]] == met


def test_without_a_gpu_the_command_fails_and_names_the_way_to_try_it(monkeypatch, capsys):
    machine = replace(this_machine(), gpus=0)
    monkeypatch.setattr(gpu, "this_machine", lambda: machine)
    monkeypatch.setattr("sys.argv", ["gpu"])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()
    assert "no NVIDIA GPU" in capsys.readouterr().err


def test_devices_have_names_memory_and_driver(monkeypatch):
    driver = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": ("NVIDIA H200", "NVIDIA L4").__getitem__,
        "nvmlDeviceGetName": str,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=1_500_000_000),
        "nvmlSystemGetDriverVersion": lambda: "580.65",
    }
    monkeypatch.setattr(gpu, "pynvml", SimpleNamespace(**driver))
    assert gpu.devices() == "NVIDIA H200, NVIDIA L4, 3.00 GB in use, driver 580.65."


def test_page_has_the_generated_block():
    check_blocks([gpu.BLOCK], [gpu.PAGE])
