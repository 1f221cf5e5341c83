"""A worker as BentoML starts it, in a process of its own."""

import subprocess
import sys

import pytest

from harness import ROOT

WORKER = """
import contextlib
import uvicorn
from bentoml._internal.configuration.containers import BentoMLContainer
from utils.errors import InferenceUnavailable
from utils.api.inputs import ImageSource

BentoMLContainer.development_mode.set(False)
BentoMLContainer.remote_runner_mapping.set({"triton": "127.0.0.1:1"})
from service import app, svc

class Worker(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        with contextlib.suppress(InferenceUnavailable):
            await app.segmenter.embed(ImageSource(image_id="0" * 64, file=None))
        (runner,) = svc.runners
        print("limit:", runner._runner_handle.client._stub.timeout.total)
        self.should_exit = True

Worker(uvicorn.Config(svc.asgi_app, port=0)).run()
"""


@pytest.mark.usefixtures("service")  # its run folder
def test_worker_calls_triton_without_a_time_limit_of_the_client():
    done = subprocess.run(
        [sys.executable, "-c", WORKER], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "limit: None\n" in done.stdout, done.stderr
