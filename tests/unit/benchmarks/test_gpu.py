"""Goals on a GPU, and the command's status."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks import gpu
from benchmarks.closed_loop import Cells
from benchmarks.servers import Turn
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
    callers = {
        cell: Turn([seconds] * 4, 4 * seconds / (2.5 if cell == gpu.TOGETHER else 1))
        for cell in gpu.REQUESTS
    }
    table = gpu.goals_table(Cells({cell: [turn] for cell, turn in callers.items()}), everything)
    assert [row.split("|")[-2].strip() for row in table.splitlines()[2:]] == met


@pytest.fixture
def _gpu(monkeypatch) -> None:
    """Stand in for tests and measurements on a machine with a GPU."""
    machine = replace(this_machine(), gpu_memory_bytes=(80 * 10**9,))
    monkeypatch.setattr(gpu, "this_machine", lambda: machine)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(returncode=0))
    monkeypatch.setattr("sys.argv", ["gpu"])


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    ("tests", "kept", "status"),
    [
        pytest.param(0, True, 0, id="all is well"),
        pytest.param(1, True, 1, id="a test fails"),
        pytest.param(0, False, 1, id="masks are not kept"),
    ],
)
def test_status_is_an_error_if_something_failed(monkeypatch, capsys, tests, kept, status):
    monkeypatch.setattr(gpu, "check", lambda *_, on_gpu: ("figures", kept))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(returncode=tests))
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert int(ended.value.code or 0) == status
    printed = capsys.readouterr().out
    assert "figures" in printed
    assert ("failed" in printed, "no." in printed) == (bool(tests), not kept)


@pytest.mark.usefixtures("_gpu")
def test_without_a_gpu_the_command_fails_and_names_the_way_to_try_it(monkeypatch, capsys):
    machine = replace(this_machine(), gpu_memory_bytes=())
    monkeypatch.setattr(gpu, "this_machine", lambda: machine)
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
