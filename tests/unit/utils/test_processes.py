"""Processes, as /proc shows them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from utils import processes

DIES_WITH_PARENT = """
import os, signal, sys, time
from utils import processes
child = os.fork()
if child == 0:
    processes.die_with_parent({parent})
    print("waiting", flush=True)
    time.sleep(60)
time.sleep(60)
"""


def test_a_process_ends_with_its_parent_however_that_ends():
    program = DIES_WITH_PARENT.format(parent="os.getppid()")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (child,) = processes.descendants(parent.pid)
        parent.kill()
        # The pipe closes when the last process that holds it has ended.
        assert parent.stdout.read() == b""
    assert child != parent.pid


def test_a_parent_that_is_gone_already_is_noticed():
    program = "import time; from utils import processes; processes.die_with_parent(1_000_000_000); time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGTERM


@pytest.mark.parametrize(("signum", "letters"), [(signal.SIGSTOP, {"T"}), (signal.SIGKILL, {"Z"})], ids=["T", "Z"])
def test_the_state_of_a_process(signum, letters):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        process.send_signal(signum)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert processes.state(process.pid) in letters
        process.kill()
    assert processes.state(process.pid) == ""


def test_the_descriptor_limit_is_raised_for_processes_that_are_started_afterwards():
    program = (
        "import resource, subprocess, sys; from utils import processes;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300)); processes.raise_descriptor_limit();"
        "print(subprocess.run(['sh', '-c', 'ulimit -n'], capture_output=True, text=True).stdout)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["300"]


def test_a_process_has_a_start_time_until_it_ends():
    own = processes.start_time(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "an argument"]) as process:
        assert processes.start_time(process.pid) >= own > 0
        assert process.pid in processes.children(os.getpid())
        while not processes.command_line(process.pid):  # it is being made
            time.sleep(0.01)
        assert processes.command_line(process.pid).rstrip().endswith("an argument")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.start_time(process.pid) == 0  # although its parent has not asked how it ended
    assert processes.start_time(process.pid) == 0
    assert processes.command_line(process.pid) == ""
