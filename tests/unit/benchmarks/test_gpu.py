"""Goals on a GPU, and the refusal to write a GPU's page without one."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import gpu
from benchmarks.closed_loop import Cells
from benchmarks.report import check_blocks
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
    callers = {cell: Turn([seconds] * 4, 4 * seconds / (2.5 if cell == gpu.TOGETHER else 1)) for cell in gpu.REQUESTS}
    table = gpu.goals_table(Cells({cell: [turn] for cell, turn in callers.items()}), everything)
    assert [row.split("|")[-2].strip() for row in table.splitlines()[2:]] == met


@pytest.fixture
def page(monkeypatch, tmp_path) -> Path:
    """Stand in for tests and measurements on a machine with a GPU; return a page with the generated block."""
    machine = replace(this_machine(), gpus=1)
    monkeypatch.setattr(gpu, "this_machine", lambda: machine)
    monkeypatch.setattr(gpu, "check", lambda *_, on_gpu: ("figures", True))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(returncode=0))
    page: Path = tmp_path / "page.md"
    page.write_text(f"<!-- bench {gpu.BLOCK} -->\nnone\n<!-- end -->\n")
    monkeypatch.setattr(gpu, "PAGE", page)
    return page


@pytest.mark.parametrize(("provider", "written"), [("cuda", "figures"), ("cpu", "none")])
def test_page_is_written_only_on_a_gpu(page, monkeypatch, provider, written):
    monkeypatch.setattr("sys.argv", ["gpu", "--provider", provider])
    with pytest.raises(SystemExit, match="False"):
        gpu.main()
    assert page.read_text().splitlines()[1] == written


@pytest.mark.parametrize(("tests", "kept"), [(1, True), (0, False)], ids=["a test fails", "masks are not kept"])
def test_status_is_an_error_if_something_failed(page, monkeypatch, tests, kept):
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(gpu, "check", lambda *_, on_gpu: ("figures", kept))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(returncode=tests))
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code
    assert ("failed" in page.read_text(), "no." in page.read_text()) == (bool(tests), not kept)


def test_without_a_gpu_the_command_fails_and_names_the_way_to_try_it(page, monkeypatch, capsys):
    machine = replace(this_machine(), gpus=0)
    monkeypatch.setattr(gpu, "this_machine", lambda: machine)
    monkeypatch.setattr("sys.argv", ["gpu"])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()
    assert "no NVIDIA GPU" in capsys.readouterr().err
    assert "none" in page.read_text()


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
