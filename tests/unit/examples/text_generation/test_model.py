"""The model that streams, outside of Triton: how a text that cannot be written ends."""

from __future__ import annotations

import sys
import types
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.unit.examples.text_generation.modules import FOLDER, load
from tests.unit.triton_backends.conftest import Response, Tensor

FINAL = "the last"


class Sender:
    """Keeps what is sent: texts, errors, and that nothing follows."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, response=None, flags=None) -> None:
        said = flags if response is None else response.error or response.outputs["text_output"][0].decode()
        self.sent.append(said)

    def is_cancelled(self) -> bool:
        return False


class Language:
    """Fails after a piece."""

    def __init__(self, _) -> None:
        pass

    def write(self, asked, send, stop) -> None:
        send(f"after {asked.text}")
        raise RuntimeError("out of memory at 0x1234")


@pytest.fixture
def utils(monkeypatch):
    """What exists inside Triton only; `counted` and `logged` are what the model counts and logs."""
    stand_in: Any = types.ModuleType("triton_python_backend_utils")
    counted: Counter[str] = Counter()
    logged: list[str] = []

    class Family:
        COUNTER = "counter"

        def __init__(self, *_) -> None:
            pass

        def Metric(self, labels):  # noqa: N802
            return types.SimpleNamespace(increment=lambda by: counted.update({labels["end"]: by}))

    stand_in.counted, stand_in.logged, stand_in.MetricFamily = counted, logged, Family
    stand_in.Logger = types.SimpleNamespace(log_error=logged.append)
    stand_in.TritonError = type("TritonError", (str,), {})
    stand_in.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    stand_in.Tensor, stand_in.InferenceResponse = Tensor, Response
    stand_in.get_input_tensor_by_name = lambda request, name: request.inputs.get(name)
    language: Any = types.ModuleType("text_generation_language")
    language.Language = Language
    for module in (stand_in, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return stand_in


def test_a_text_that_fails_on_its_way_ends_with_an_error_which_keeps_the_cause_to_the_log(utils):
    for name in ("text_generation_settings", "text_generation_request"):
        load(name)
    sender = Sender()
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
    assert sender.sent == ["after a text", "the text could not be written", FINAL]
    assert dict(utils.counted) == {"failed": 1}
    assert utils.logged == ["a text could not be written: RuntimeError('out of memory at 0x1234')"]
