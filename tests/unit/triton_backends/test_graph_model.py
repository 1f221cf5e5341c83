"""Common behaviour of both Python-based backends, with real ONNX models."""

import sys
from unittest.mock import Mock

import numpy as np
import pytest

from tests.unit.triton_backends.graphs import (
    Request,
    TritonModelException,
    config,
    load,
    write_model,
    x,
)


@pytest.fixture(params=["onnxruntime", "openvino"])
def backend(request, load_backend):
    return load_backend(request.param)


def test_requests_of_one_call_run_as_one_batch_and_get_the_outputs_they_ask_for(backend, tmp_path):
    write_model(tmp_path)
    requests = [
        Request("y", "n", x=x([1, 1])),
        Request("y", "n", x=x([2, 2], [3, 3])),
        Request("n", x=x([4, 4])),
    ]
    answers = load(backend, tmp_path, config()).execute(requests)
    assert [answer.outputs["n"].tolist() for answer in answers] == [[4], [4, 4], [4]]
    assert answers[1].outputs["y"].tolist() == [[4, 4], [6, 6]]
    assert set(answers[2].outputs) == {"n"}


def test_requests_of_different_shapes_run_separately(backend, tmp_path):
    write_model(tmp_path)
    answers = load(backend, tmp_path, config()).execute(
        [Request("n", x=x([1])), Request("n", x=x([1, 2]))]
    )
    assert [answer.outputs["n"].tolist() for answer in answers] == [[1], [1]]


def test_failed_request_does_not_affect_the_others(backend, tmp_path):
    write_model(tmp_path)
    wrong = Request("y", x=np.zeros((1, 2, 3), np.float32))
    answers = load(backend, tmp_path, config()).execute([wrong, Request("y", x=x([1]))])
    assert "\n" not in answers[0].error
    assert answers[1].outputs["y"].tolist() == [[2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; put the model there, "),
        (b"", ""),
        (b"not a model", ""),
        (b"\x08\x07" * 100, ""),
    ],
    ids=["missing", "empty", "text", "protobuf"],
)
def test_missing_or_invalid_file_is_a_one_line_error(backend, tmp_path, content, message):
    (tmp_path / "1").mkdir()
    if content is not None:
        (tmp_path / "1" / "model.onnx").write_bytes(content)
    with pytest.raises(TritonModelException, match=f"model.onnx: {message}") as caught:
        load(backend, tmp_path, config())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["mobile_sam_encoder", "mobile_sam_decoder"])
def test_missing_file_of_this_repository_s_models_names_make_weights(backend, tmp_path, name):
    with pytest.raises(
        TritonModelException, match=r"model.onnx: no such file; `make weights` writes it$"
    ):
        load(backend, tmp_path, config(name=name))


def test_config_that_does_not_match_the_graph_is_an_error(backend, tmp_path):
    write_model(tmp_path)
    with pytest.raises(TritonModelException, match=r"outputs are .*config.pbtxt declares"):
        load(
            backend,
            tmp_path,
            config(output=[{"name": "y", "data_type": "TYPE_FP16", "dims": [-1]}]),
        )


@pytest.fixture
def complete(backend, tmp_path, monkeypatch):
    """Function that completes a configuration of a model in `tmp_path`, and returns the calls
    that it gets.
    """
    utils = sys.modules["triton_python_backend_utils"]
    monkeypatch.setattr(utils, "get_model_dir", lambda: str(tmp_path / "1"), raising=False)

    def completed(**fields) -> dict[str, list[tuple]]:
        given = Mock()
        given.as_dict.return_value = {"max_batch_size": 0, "input": [], "output": [], **fields}
        assert backend.TritonPythonModel.auto_complete_config(given) is given
        calls: dict[str, list[tuple]] = {}
        for name, arguments, _ in given.method_calls:
            calls.setdefault(name, []).append(arguments)
        del calls["as_dict"]
        return calls

    return completed


X, Y = ({"name": name, "data_type": "TYPE_FP32", "dims": [3]} for name in ("x", "y"))
TENSORS = {"add_input": [(X,)], "add_output": [(Y,)]}


def test_inputs_outputs_and_batching_are_completed_from_the_file(complete, tmp_path):
    write_model(tmp_path, width=3, count=False)
    assert complete() == {**TENSORS, "set_max_batch_size": [(4,)], "set_dynamic_batching": [()]}


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        pytest.param({"max_batch_size": 8}, {"set_dynamic_batching": [()]}, id="several"),
        pytest.param({"max_batch_size": 1}, {}, id="one"),
        pytest.param({"max_batch_size": 8, "dynamic_batching": {}}, {}, id="dynamic-batching"),
        pytest.param({"max_batch_size": 8, "sequence_batching": {}}, {}, id="sequence-batching"),
    ],
)
def test_dynamic_batching_is_added_to_a_maximum_batch_size_without_scheduler(
    complete, tmp_path, fields, added
):
    write_model(tmp_path, width=3, count=False)
    assert complete(**fields) == {**TENSORS, **added}


def test_config_with_inputs_and_outputs_stays_as_it_is(complete, tmp_path):
    write_model(tmp_path, width=3, count=False)
    assert complete(max_batch_size=8, input=[X], output=[Y]) == {}


def test_maximum_batch_size_of_a_graph_with_a_fixed_batch_is_an_error(complete, tmp_path):
    write_model(tmp_path, width=3, count=False, batch=2)
    message = (
        r"config.pbtxt has max_batch_size 8, but the graph does not support batches: .*\[\[2, 3\],"
        r" \[2, 3\]\]$"
    )
    with pytest.raises(TritonModelException, match=message):
        complete(max_batch_size=8)
    assert set(complete()) == {"add_input", "add_output"}


def test_default_model_filename_is_used(backend, tmp_path):
    write_model(tmp_path)
    (tmp_path / "1" / "model.onnx").rename(tmp_path / "1" / "other.onnx")
    load(backend, tmp_path, config(default_model_filename="other.onnx"))


def test_requests_without_batching_run_one_by_one_and_keep_their_outputs(backend, tmp_path):
    write_model(tmp_path)
    requests = [Request("y", "n", x=x([index])) for index in range(4)]
    answers = load(backend, tmp_path, config(batched=False)).execute(requests)
    assert [answer.outputs["y"].tolist() for answer in answers] == [[[0]], [[2]], [[4]], [[6]]]
    assert [answer.outputs["n"].tolist() for answer in answers] == [[1]] * 4


def test_model_runs_at_the_priority_of_its_config(backend, tmp_path, monkeypatch):
    increments: list[int] = []
    monkeypatch.setattr("os.nice", increments.append)
    write_model(tmp_path)
    load(backend, tmp_path, config())
    load(backend, tmp_path, config(parameters={"nice": {"string_value": "5"}}))
    assert increments == [0, 5]
