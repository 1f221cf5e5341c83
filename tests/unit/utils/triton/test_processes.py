"""Process control and states from /proc."""

import os
import signal
import subprocess
import sys

import pytest

from utils.triton import processes

DIES_WITH_PARENT = """
import os, signal, sys, time
from utils.triton import processes
child = os.fork()
if child == 0:
    processes.die_with_parent({parent})
    print("waiting", flush=True)
    time.sleep(60)
time.sleep(60)
"""


def test_die_with_parent_ends_the_process_with_its_parent():
    program = DIES_WITH_PARENT.format(parent="os.getppid()")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        ((child, _, _),) = processes.children(parent.pid)
        parent.kill()
        # The pipe closes when the last process with it has exited.
        assert parent.stdout.read() == b""
    assert child != parent.pid


def test_die_with_parent_notices_a_dead_parent():
    program = (
        "import time; from utils.triton import processes; processes.die_with_parent(1_000_000_000); time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGTERM


@pytest.mark.parametrize(("signum", "letters"), [(signal.SIGSTOP, {"T"}), (signal.SIGKILL, {"Z"})], ids=["T", "Z"])
def test_state_of_stopped_and_dead_processes(signum, letters):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        process.send_signal(signum)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert processes.state(process.pid) in letters
        process.kill()
    assert processes.state(process.pid) == ""


def test_raised_descriptor_limit_is_inherited():
    program = (
        "import resource, subprocess, sys; from utils.triton import processes;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300)); processes.raise_descriptor_limit();"
        "print(subprocess.run(['sh', '-c', 'ulimit -n'], capture_output=True, text=True).stdout)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["300"]


def test_start_time_and_command_line_end_with_the_process():
    own = processes.start_time(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "an argument"]) as process:
        assert processes.start_time(process.pid) >= own > 0
        lines: dict[int, str] = {}
        while not lines.get(process.pid):  # not set up yet
            lines = {pid: line for pid, _, line in processes.children(os.getpid())}
        assert lines[process.pid].endswith("an argument")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.start_time(process.pid) == 0  # although it is still a zombie
    assert processes.start_time(process.pid) == 0
    assert list(processes.children(process.pid)) == []
