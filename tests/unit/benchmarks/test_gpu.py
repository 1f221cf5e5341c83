"""Steps of the check of a GPU, its goals, and the command's status."""

import re
import sys
from concurrent.futures import Executor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks import gpu, gpu_figures
from benchmarks.closed_loop import Cells
from benchmarks.gpu_figures import FEW, FULL, TOGETHER
from benchmarks.servers import Turn
from utils.triton.machine import this_machine


@pytest.mark.parametrize(
    ("seconds", "cpu_seconds", "everything", "met"),
    [
        pytest.param(0.006, 0.005, 300.0, ["met"] * 6, id="all"),
        pytest.param(
            0.030, 0.005, 300.0, ["met", "missed", "missed", "met", "met", "met"], id="slow"
        ),
        pytest.param(0.006, 0.005, 301.0, ["met"] * 3 + ["missed"] + ["met"] * 2, id="slow grid"),
        pytest.param(0.006, 0.025, 300.0, ["met"] * 5 + ["missed"], id="much CPU for known images"),
    ],
)
def test_goals_are_met_or_missed(seconds, cpu_seconds, everything, met):
    def turn(cell):
        at_once = 2 if cell == TOGETHER else 1
        return Turn([seconds] * 4, 4 * seconds / at_once, 4 * cpu_seconds)

    cells = Cells({cell: [turn(cell)] for cell in FULL.requests})
    table = gpu_figures.goals_table(cells, everything, FULL.points_per_side)
    assert [row.split("|")[-2].strip() for row in table.splitlines()[2:]] == met


@pytest.fixture
def _gpu(monkeypatch, tmp_path) -> None:
    """Stand in for a machine with a GPU, and for the steps."""
    machine = replace(this_machine(), gpu_memory_bytes=(80 * 10**9,))
    monkeypatch.setattr(gpu, "this_machine", lambda: machine)
    monkeypatch.setattr("sys.argv", ["gpu", "--folder", str(tmp_path)])
    for name in gpu.Check("official", Executor(), on_gpu=False, effort=FEW).steps():
        monkeypatch.setattr(gpu.Check, name, lambda _, report: True)


def ended() -> int:
    """Run the command and return its status."""
    with pytest.raises(SystemExit) as exit_:
        gpu.main()
    return int(exit_.value.code or 0)


@pytest.mark.usefixtures("_gpu")
def test_all_steps_for_a_gpu_run_in_order(capsys, tmp_path):
    assert ended() == 0
    passed = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ":" in line]
    assert passed == ["smoke", "parity", "gate", "figures", "graphs", "jpeg", "changes", "tests"]
    assert {file.stem for file in (tmp_path / "cuda").iterdir()} == set(passed)


@pytest.mark.usefixtures("_gpu")
def test_a_failed_step_sets_the_status_and_the_others_run(monkeypatch, capsys):
    def gate(_, report):
        report("figures of the gate")
        return False

    monkeypatch.setattr(gpu.Check, "gate", gate)
    assert ended() == 1
    printed = capsys.readouterr().out
    assert "figures of the gate" in printed
    assert "tests: passed after" in printed
    assert printed.endswith("failed: gate\n")


@pytest.mark.usefixtures("_gpu")
def test_one_step_runs_alone(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [*sys.argv, "--step", "stages"])
    assert ended() == 0
    assert re.fullmatch(r"== stages\nstages: passed after \d+ s\n", capsys.readouterr().out)


@pytest.mark.usefixtures("_gpu")
def test_an_unknown_step_is_an_error_that_names_all(monkeypatch):
    monkeypatch.setattr("sys.argv", [*sys.argv, "--step", "figure"])
    with pytest.raises(SystemExit, match=r"expected one of smoke, parity, .*, got 'figure'"):
        gpu.main()


@pytest.mark.usefixtures("_gpu")
def test_without_a_gpu_the_steps_include_the_time_beside_the_graphs(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [*sys.argv, "--provider", "cpu", "--stages"])
    assert ended() == 0
    expected = r"beside: passed after \d+ s\n== stages\nstages: passed after \d+ s\n\Z"
    assert re.search(expected, capsys.readouterr().out)


@pytest.mark.usefixtures("_gpu")
def test_without_a_gpu_the_command_fails_and_names_the_way_to_try_it(monkeypatch, capsys):
    machine = replace(this_machine(), gpu_memory_bytes=())
    monkeypatch.setattr(gpu, "this_machine", lambda: machine)
    assert ended() == 2
    assert "no NVIDIA GPU" in capsys.readouterr().err


@pytest.mark.slow
def test_run_tests_reports_each_line_and_whether_all_passed(tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text("def test_good(): pass\n\ndef test_bad(): assert not 'a reason'\n")
    lines: list[str] = []
    options = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(file))
    assert not gpu.run_tests(lines.append, *options)
    assert "1 failed, 1 passed" in lines[-1]
    assert gpu.run_tests(lines.append, *options, "-k", "good")


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
