"""Processes of `make try-label-studio`."""

import os
import signal
import subprocess
import sys

import pytest

from tests.waiting import wait_until
from utils.triton import processes

RUN = """
from tools.try_label_studio import end_on_signals, running
end_on_signals()
with running(["sleep", "600"], {}, None) as process:
    print(process.pid, flush=True)
    process.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_server_ends_with_the_process_that_runs_it(number):
    with subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        server = int(process.stdout.readline())
        os.kill(process.pid, number)
        assert process.wait(60) in (128 + number, -number)
    wait_until(lambda: processes.state(server) in processes.DEAD)
