"""Models of examples/ensemble, run without Triton."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.triton_backends.conftest import Response, Tensor
from tests.unit.triton_backends.graphs import TritonModelException

REPOSITORY = Path(__file__).resolve().parents[3] / "examples" / "ensemble" / "model_repository"
ONES, BIG, INFINITE = [1, 1, 1, 1], [1, 1, 3e38, 1], [1, 1, 1, np.inf]


class TritonError(str):
    INVALID_ARG = "INVALID_ARG"

    def __new__(cls, message, code):
        return super().__new__(cls, f"{code} {message}")


@pytest.fixture
def load(monkeypatch):
    """Factory of models with a given configuration; `triton_python_backend_utils` is a fake."""

    def load_model(name: str, **config: Any) -> Any:
        utils: Any = types.ModuleType("triton_python_backend_utils")
        utils.TritonModelException, utils.TritonError = TritonModelException, TritonError
        utils.Tensor, utils.InferenceResponse = Tensor, Response
        utils.get_input_tensor_by_name = lambda request, name: Tensor(name, request[name])
        utils.triton_string_to_numpy = {"TYPE_FP32": np.float32}.__getitem__
        monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
        source = REPOSITORY / name / "1" / "model.py"
        module = types.ModuleType(f"example_{name}")
        exec(compile(source.read_text(), source, "exec"), module.__dict__)
        model = module.TritonPythonModel()
        model.initialize({"model_config": json.dumps({"name": name, **config})})
        return model

    return load_model


def request(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    return {"INPUT0": np.array([first], np.float32), "INPUT1": np.array([second], np.float32)}


@pytest.fixture
def add_sub(load):
    return load("add_sub", output=[{"name": name, "data_type": "TYPE_FP32"} for name in ("SUM", "DIFFERENCE")])


@pytest.fixture
def mul(load):
    return load("mul", parameters={"largest": {"string_value": "100"}})


def test_invalid_request_in_a_batch_does_not_affect_the_others(add_sub, capsys):
    first, bad, last = add_sub.execute([request(ONES, ONES), request(BIG, BIG), request(ONES, [0, 1, 2, 3])])
    assert first.outputs["SUM"].tolist() == [[2, 2, 2, 2]]
    assert (bad.outputs, bad.error[:26]) == ({}, "INVALID_ARG SUM[2]: expect")
    assert last.outputs["DIFFERENCE"].tolist() == [[1, 0, -1, -2]]
    assert last.outputs["DIFFERENCE"].dtype == np.float32
    add_sub.finalize()
    assert capsys.readouterr().out == "add_sub: answered 2, rejected 1\n"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (ONES, INFINITE, "SUM[3]: expected a finite FP32 number, got 1 + inf"),
        (INFINITE, INFINITE, "SUM[3]: expected a finite FP32 number, got inf + inf"),
        (BIG, [0, 0, -3e38, 0], "DIFFERENCE[2]: expected a finite FP32 number, got 3e+38 - -3e+38"),
    ],
    ids=["one infinite input", "two infinite inputs", "overflowing difference"],
)
def test_result_beyond_fp32_is_an_invalid_argument(add_sub, first, second, message):
    (response,) = add_sub.execute([request(first, second)])
    assert response.error == f"INVALID_ARG {message}"


@pytest.mark.parametrize(
    ("factor", "rejected"),
    [(100, False), (-100, False), (100.5, True), (-100.5, True), (np.nan, True), (np.inf, True)],
    ids=["maximum", "minimum", "too large", "too small", "NaN", "infinite"],
)
def test_product_beyond_the_limit_is_rejected(mul, factor, rejected):
    (response,) = mul.execute([request(ONES, [1, factor, 1, 1])])
    if rejected:
        message = f"OUTPUT[1]: expected a product of at most 100 in magnitude, got 1 * {factor:g}"
        assert response.error == f"INVALID_ARG {message}"
    else:
        assert response.error is None
        assert response.outputs["OUTPUT"].tolist() == [[1, factor, 1, 1]]


@pytest.mark.parametrize("largest", ["much", "0", "-1", "nan", ""])
def test_model_with_invalid_limit_fails_to_load(load, largest):
    with pytest.raises(TritonModelException, match="largest: expected a positive number, got"):
        load("mul", parameters={"largest": {"string_value": largest}})
