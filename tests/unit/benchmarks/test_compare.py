"""Another revision's files, and the table of the comparison."""

import subprocess

import pytest

from benchmarks.closed_loop import Cell, Cells
from benchmarks.compare import BASELINE, OURS, REQUESTS, as_table, checked_out
from benchmarks.servers import Turn


def test_ratio_above_one_means_that_this_checkout_is_slower():
    cells = Cells()
    for clicks in REQUESTS:
        for seconds in (1.0, 2.0):
            cells.add(Cell(BASELINE, *clicks), Turn([seconds] * 4, 4 * seconds))
            cells.add(Cell(OURS, *clicks), Turn([1.25 * seconds] * 4, 5 * seconds))
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in as_table(cells).splitlines()[2:]
    ]
    expected = ["1000", "2000", "1250", "2500", "1.25 (1.25-1.25)"]
    assert rows == [[workload, f"{callers}", *expected] for workload, callers in REQUESTS]


def test_files_of_a_revision_are_there_until_the_end(tmp_path):
    def git(*arguments: str) -> None:
        person = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(
            ["git", "-C", tmp_path, *person, *arguments], check=True, capture_output=True
        )

    git("init")
    file = tmp_path / "folder" / "file"
    file.parent.mkdir()
    for text in ("first", "second"):
        file.write_text(text)
        git("add", "folder")
        git("commit", "-m", text)
    file.write_text("not committed")
    for revision, text in {"HEAD": "second", "HEAD~1": "first"}.items():
        with checked_out(revision, tmp_path) as root:
            assert (root / "folder" / "file").read_text() == text
        assert not root.exists()
    for unknown in ("no-such-branch", "--output=file"):
        with (
            pytest.raises(SystemExit, match="error: fatal: not a valid object name: "),
            checked_out(unknown, tmp_path),
        ):
            pass
    assert file.read_text() == "not committed"
