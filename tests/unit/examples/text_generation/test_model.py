"""Failure of the streaming model, run without Triton."""

from __future__ import annotations

import sys
import types
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.unit.examples.text_generation.modules import FOLDER, load
from tests.unit.triton_backends.conftest import Response, Tensor

FINAL = "final"


class FakeSender:
    """Response sender that records texts, errors and the final flag."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, response=None, flags=None) -> None:
        entry = flags if response is None else response.error or response.outputs["text_output"][0].decode()
        self.sent.append(entry)

    def is_cancelled(self) -> bool:
        return False


class FailingLanguage:
    """Language model that fails after one piece."""

    def __init__(self, _) -> None:
        pass

    def write(self, request, send, stop) -> None:
        send(f"after {request.text}")
        raise RuntimeError("out of memory at 0x1234")


@pytest.fixture
def utils(monkeypatch):
    """Fake `triton_python_backend_utils`; `counted` and `logged` record metrics and log lines."""
    fake: Any = types.ModuleType("triton_python_backend_utils")
    counted: Counter[str] = Counter()
    logged: list[str] = []

    class Family:
        COUNTER = "counter"

        def __init__(self, *_) -> None:
            pass

        def Metric(self, labels):  # noqa: N802
            return types.SimpleNamespace(increment=lambda by: counted.update({labels["end"]: by}))

    fake.counted, fake.logged, fake.MetricFamily = counted, logged, Family
    fake.Logger = types.SimpleNamespace(log_error=logged.append)
    fake.TritonError = type("TritonError", (str,), {})
    fake.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    fake.Tensor, fake.InferenceResponse = Tensor, Response
    fake.get_input_tensor_by_name = lambda request, name: request.inputs.get(name)
    language: Any = types.ModuleType("text_generation_language")
    language.Language = FailingLanguage
    for module in (fake, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake


def test_failure_during_generation_sends_an_error_and_logs_the_cause(utils):
    for name in ("text_generation_settings", "text_generation_request"):
        load(name)
    sender = FakeSender()
    request = types.SimpleNamespace(
        inputs={"text_input": Tensor("text_input", np.array([b"a text"], np.object_))},
        get_response_sender=lambda: sender,
    )
    code = types.ModuleType("text_generation_stream")
    exec(compile((FOLDER / "model.py").read_text(), FOLDER / "model.py", "exec"), code.__dict__)
    model = code.TritonPythonModel()
    model.initialize({})
    model.execute([request])
    model.threads.shutdown()
    assert sender.sent == ["after a text", "text generation failed", FINAL]
    assert dict(utils.counted) == {"failed": 1}
    assert utils.logged == ["text generation failed: RuntimeError('out of memory at 0x1234')"]
