"""The command line as a whole: help, completion, and what every command does with what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mobile_sam_client
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture

COMMANDS = ("segment", "everything", "batch", "embed", "info")
CLIENT = str(Path(mobile_sam_client.__file__).parents[1])


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "mobile_sam_client", *arguments],
        env={**os.environ, "PYTHONPATH": CLIENT, **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_examples_of_itself(run, command):
    done = run(command, "--help")
    assert done.exit_code == 0
    assert f"mobile-sam {command}" in done.output.partition("Examples")[2]


def test_help_lists_all_commands_and_no_command_is_help(run):
    assert run("--help").output.split() == run().output.split()
    assert all(f" {command} " in run("--help").output for command in COMMANDS)


def test_completion_answers():
    words = {"COMP_WORDS": "mobile-sam e", "COMP_CWORD": "1"}
    done = start(_MOBILE_SAM_COMPLETE="complete_bash", **words)
    assert done.stdout.split() == [b"everything", b"embed"]


def test_completion_can_be_installed():
    done = start(_MOBILE_SAM_COMPLETE="source_bash")
    assert b"_MOBILE_SAM_COMPLETE=complete_bash" in done.stdout


def test_a_name_that_moves_the_cursor_is_printed_without(run, sam, tmp_path):
    (tmp_path / "\x1b[2Jphoto.png").write_bytes(picture(1))
    done = run("embed", "\x1b[2Jphoto.png", "\x1b[2Jabsent.png")
    assert done.stdout.endswith("  \N{REPLACEMENT CHARACTER}[2Jphoto.png\n")
    assert done.stderr == "error: \N{REPLACEMENT CHARACTER}[2Jabsent.png: No such file or directory\n"
    assert "\x1b" not in run("segment", "\x1b[2Jabsent.png", "--point", "1,1").stderr


def test_a_name_that_cannot_be_printed_is_escaped(tmp_path):
    done = start("segment", "\udcff.png", "--point", "1,1", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (1, b"error: \\ufffd.png: No such file or directory\n")


def test_ctrl_c_is_told_in_a_line(run, sam, photo):
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    sam.instead[photo] = interrupt
    done = run("embed", "photo.png")
    assert (done.exit_code, done.stderr) == (130, "error: interrupted\n")


def test_a_reader_that_has_seen_enough_is_no_error():
    shell = f"{sys.executable} -m mobile_sam_client --help | head -c 1"
    done = subprocess.run(
        ["/bin/sh", "-c", shell],
        env={**os.environ, "PYTHONPATH": CLIENT},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == b""
