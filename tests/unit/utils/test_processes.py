"""Process control; the watchdog's tests show that states and children are read."""

import signal
import subprocess
import sys


def run(program: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", f"from utils import processes; {program}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_die_with_parent_notices_a_dead_parent():
    assert (
        run("import time; processes.die_with_parent(10**9); time.sleep(60)").returncode
        == -signal.SIGTERM
    )


def test_raised_descriptor_limit_is_inherited():
    program = (
        "import resource, subprocess; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300)); "
    )
    assert (
        run(
            program + "processes.raise_descriptor_limit(); subprocess.run('ulimit -n', shell=True)"
        ).stdout
        == "300\n"
    )
