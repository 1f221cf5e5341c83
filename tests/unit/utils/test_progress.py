"""Output of a command in the log and on a terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from utils import progress

ROOT = Path(__file__).resolve().parents[3]
# A first line, a progress bar drawn twice and cleared, and a last line in colour.
COMMAND = [
    "printf",
    r"from https://me:secret@one.example/simple\nbar 10%%\rbar 50%%\r\033[2K\033[31mlast line\033[0m\n",
]
LINES = "from https://****@one.example/simple\nlast line\n"


def test_log_has_the_output_without_bars_and_credentials(tmp_path, capfd):
    log = tmp_path / "log"
    log.write_text("earlier\n")
    assert progress.run(COMMAND, log, os.environ) == (0, LINES)
    assert log.read_text() == f"earlier\n{LINES}"
    assert capfd.readouterr() == ("", "")


def test_command_gets_the_environment_and_returns_its_exit_status(tmp_path):
    command = ["/bin/sh", "-c", "echo $ONLY; tty; printf end; exit 3"]
    assert progress.run(command, tmp_path / "log", {"ONLY": "mine"}) == (3, "mine\nnot a tty\nend\n")


def on_terminal(tmp_path: Path, command: list[str], **environment: str) -> str:
    """Return the raw output on a terminal of 80 x 24 while a command runs."""
    terminal, slave = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    script = "import os, pathlib, sys; from utils import progress; "
    script += "progress.run(sys.argv[2:], pathlib.Path(sys.argv[1]), os.environ)"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log"), *command],
        stderr=slave,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:  # end of the terminal
        pass
    os.close(terminal)
    assert process.wait() == 0
    return shown.decode()


def test_terminal_shows_the_bar_and_no_finished_line(tmp_path):
    shown = on_terminal(tmp_path, COMMAND)
    assert "bar 10%\rbar 50%" in shown
    assert "line" not in shown
    assert "secret" not in shown
    assert shown.endswith("\r\x1b[2K\x1b[?25h")
    assert (tmp_path / "log").read_text() == LINES


def test_command_gets_a_terminal_of_a_few_rows(tmp_path):
    on_terminal(tmp_path, ["/bin/sh", "-c", "stty size <&1"])
    assert (tmp_path / "log").read_text() == "6 80\n"


def test_terminal_without_escape_sequences_shows_nothing(tmp_path):
    assert on_terminal(tmp_path, COMMAND, TERM="dumb") == ""
    assert (tmp_path / "log").read_text() == LINES


def test_bar_written_in_pieces_leaves_one_line_in_the_log(tmp_path):
    pieces = ["bar 1%%", r"0%%\r", r"bar 99%%\r", r"whole line\r", r"\n"]
    command = ["/bin/sh", "-c", "; sleep 0.1; ".join(f"printf '{piece}'" for piece in pieces)]
    assert progress.run(command, tmp_path / "log", os.environ) == (0, "whole line\n")


def test_interrupt_ends_the_command(tmp_path, monkeypatch):
    pid = tmp_path / "pid"

    def interrupted(_: bytes) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("utils.progress._clean", interrupted)
    with pytest.raises(KeyboardInterrupt):
        progress.run(["/bin/sh", "-c", f"echo $$ > {pid}; echo line; exec sleep 60"], tmp_path / "log", os.environ)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_missing_command_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        progress.run([str(tmp_path / "missing")], tmp_path / "log", os.environ)
