"""Models of examples/ensemble, run without Triton."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

from tests.unit.examples import models
from tests.unit.triton_backends.graphs import TritonModelException

ONES, BIG, INFINITE = [1, 1, 1, 1], [1, 1, 3e38, 1], [1, 1, 1, np.inf]


@pytest.fixture
def load(monkeypatch):
    """Factory of models with a given configuration."""

    def load_model(name: str, **config: Any) -> Any:
        monkeypatch.setitem(sys.modules, "triton_python_backend_utils", models.fake_utils())
        model = models.load("ensemble", name, "model").TritonPythonModel()
        model.initialize({"model_config": json.dumps({"name": name, **config})})
        return model

    return load_model


def request(first, second) -> dict[str, np.ndarray]:
    return {"INPUT0": np.array([first], np.float32), "INPUT1": np.array([second], np.float32)}


@pytest.fixture
def add_sub(load):
    return load("add_sub", output=[{"name": name, "data_type": "TYPE_FP32"} for name in ("SUM", "DIFFERENCE")])


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
        (INFINITE, INFINITE, "SUM[3]: expected a finite FP32 number, got inf + inf"),
        (BIG, [0, 0, -3e38, 0], "DIFFERENCE[2]: expected a finite FP32 number, got 3e+38 - -3e+38"),
    ],
    ids=["infinite inputs", "overflowing difference"],
)
def test_result_beyond_fp32_is_an_invalid_argument(add_sub, first, second, message):
    (response,) = add_sub.execute([request(first, second)])
    assert response.error == f"INVALID_ARG {message}"


@pytest.mark.parametrize(
    ("factor", "rejected"),
    [(100, False), (-100, False), (100.5, True), (-100.5, True), (np.nan, True), (np.inf, True)],
    ids=["maximum", "minimum", "too large", "too small", "NaN", "infinite"],
)
def test_product_beyond_the_limit_is_rejected(load, factor, rejected):
    (response,) = load("mul", parameters={"largest": {"string_value": "100"}}).execute(
        [request(ONES, [1, factor, 1, 1])]
    )
    if rejected:
        message = f"OUTPUT[1]: expected a product of at most 100 in magnitude, got 1 * {factor:g}"
        assert response.error == f"INVALID_ARG {message}"
    else:
        assert response.outputs["OUTPUT"].tolist() == [[1, factor, 1, 1]]


@pytest.mark.parametrize("largest", ["much", "0", "-1", "nan", ""])
def test_model_with_invalid_limit_fails_to_load(load, largest):
    with pytest.raises(TritonModelException, match="largest: expected a positive number, got"):
        load("mul", parameters={"largest": {"string_value": largest}})
