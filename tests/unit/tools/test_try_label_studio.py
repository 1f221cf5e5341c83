"""Processes of `make try-label-studio`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import wait_until
from utils import processes

RUN = """
import tempfile
from tools.try_label_studio import end_on_signals, running
end_on_signals()
with tempfile.TemporaryDirectory() as folder, running(["sleep", "600"], {}, None) as process:
    print(process.pid, folder, flush=True)
    process.wait()
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name
)
def test_server_ends_with_the_process_that_runs_it(number, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        server, folder = process.stdout.readline().split()
        os.kill(process.pid, number)
        process.send_signal(signal.SIGTERM)  # as when the parent ends by the same signal
        # Whichever it sees first.
        assert process.wait(60) in (
            128 + number,
            -number,
            128 + signal.SIGTERM,
        )
    wait_until(lambda: processes.state(int(server)) in processes.DEAD)
    if number != signal.SIGKILL:
        assert not Path(folder).exists()
