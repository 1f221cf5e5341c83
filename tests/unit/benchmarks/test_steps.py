"""Steps of a long check: what a later call skips, and what it runs again."""

import re

import pytest

from benchmarks.steps import file_of, has_passed, run_step, run_steps


class Steps(dict):
    """Steps with given results, and the names of those that ran."""

    def __init__(self, **results: bool) -> None:
        self.ran: list[str] = []
        super().__init__({name: self._step(name, result) for name, result in results.items()})

    def _step(self, name: str, result: bool):
        def step(report):
            self.ran.append(name)
            report(f"figures of {name}")
            return result

        return step


def test_steps_print_at_once_and_keep_what_they_print(tmp_path, capsys):
    assert run_steps(Steps(one=True, two=True), tmp_path)
    printed = capsys.readouterr().out
    assert printed == "".join(file_of(name, tmp_path).read_text() for name in ("one", "two"))
    assert re.search(r"figures of two\ntwo: passed after \d+ s\n", printed)


def test_a_later_call_skips_steps_that_have_passed_and_repeats_the_others(tmp_path, capsys):
    assert not run_steps(Steps(one=True, two=False, three=True), tmp_path)
    later = Steps(one=True, two=True, three=True)
    assert run_steps(later, tmp_path)
    assert later.ran == ["two"]
    assert f"one: passed before, see {tmp_path / 'one.txt'}" in capsys.readouterr().out


def test_an_interrupted_step_runs_again(tmp_path):
    def interrupted(report):
        report("figures, and then nothing")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_step("one", interrupted, tmp_path)
    assert "figures" in file_of("one", tmp_path).read_text()
    assert not has_passed("one", tmp_path)


def test_a_step_that_raises_is_reported_and_the_next_one_runs(tmp_path, capsys):
    def broken(report):
        raise RuntimeError("no such engine")

    steps = Steps(two=True)
    assert not run_steps({"one": broken, **steps}, tmp_path)
    assert steps.ran == ["two"]
    assert "RuntimeError: no such engine" in file_of("one", tmp_path).read_text()
    assert capsys.readouterr().out.endswith("failed: one\n")


def test_a_single_step_runs_again_although_it_has_passed(tmp_path):
    steps = Steps(one=True)
    assert all(run_step("one", steps["one"], tmp_path) for _ in range(2))
    assert steps.ran == ["one", "one"]
