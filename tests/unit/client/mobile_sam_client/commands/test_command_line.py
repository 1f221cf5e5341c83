"""The command line as a whole: help, completion, error handling."""

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


def run_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "mobile_sam_client", *arguments],
        env={**os.environ, "PYTHONPATH": CLIENT, **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(run, command):
    done = run(command, "--help")
    assert done.exit_code == 0
    assert f"mobile-sam {command}" in done.output.partition("Examples")[2]


def test_help_lists_all_commands_and_is_the_default(run):
    assert run("--help").output.split() == run().output.split()
    assert all(f" {command} " in run("--help").output for command in COMMANDS)


def test_completion_completes_commands():
    words = {"COMP_WORDS": "mobile-sam e", "COMP_CWORD": "1"}
    done = run_process(_MOBILE_SAM_COMPLETE="complete_bash", **words)
    assert done.stdout.split() == [b"everything", b"embed"]


def test_completion_script_is_available():
    done = run_process(_MOBILE_SAM_COMPLETE="source_bash")
    assert b"_MOBILE_SAM_COMPLETE=complete_bash" in done.stdout


def test_control_characters_in_file_names_are_replaced(run, sam, tmp_path):
    (tmp_path / "\x1b[2Jphoto.png").write_bytes(picture(1))
    done = run("embed", "\x1b[2Jphoto.png", "\x1b[2Jabsent.png")
    assert done.stdout.endswith("  \N{REPLACEMENT CHARACTER}[2Jphoto.png\n")
    assert done.stderr == "error: \N{REPLACEMENT CHARACTER}[2Jabsent.png: No such file or directory\n"
    assert "\x1b" not in run("segment", "\x1b[2Jabsent.png", "--point", "1,1").stderr


def test_unencodable_file_name_is_escaped(tmp_path):
    done = run_process("segment", "\udcff.png", "--point", "1,1", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (1, b"error: \\ufffd.png: No such file or directory\n")


def test_ctrl_c_prints_one_line(run, sam, photo):
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    sam.replies[photo] = interrupt
    done = run("embed", "photo.png")
    assert (done.exit_code, done.stderr) == (130, "error: interrupted\n")


def test_broken_pipe_is_not_an_error():
    shell = f"{sys.executable} -m mobile_sam_client --help | head -c 1"
    done = subprocess.run(
        ["/bin/sh", "-c", shell],
        env={**os.environ, "PYTHONPATH": CLIENT},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == b""
