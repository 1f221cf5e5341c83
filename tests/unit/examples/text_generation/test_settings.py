"""Which model is loaded, in which dtype, on which device."""

from __future__ import annotations

import pytest

from tests.unit.examples.text_generation.modules import load

settings = load("text_generation_settings")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, ("gpt2", "auto", "auto"), id="nothing is said"),
        pytest.param({"MODEL": "", "DTYPE": "", "DEVICE": ""}, ("gpt2", "auto", "auto"), id="all are empty"),
        pytest.param(
            {"MODEL": "tiiuae/falcon-7b", "DTYPE": "bfloat16", "DEVICE": "cuda:1"},
            ("tiiuae/falcon-7b", "bfloat16", "cuda:1"),
            id="all are said",
        ),
    ],
)
def test_the_environment_says_what_is_loaded(environment, expected):
    named = {f"TEXT_GENERATION_{name}": value for name, value in environment.items()}
    assert settings.Settings.of(named) == settings.Settings(*expected)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        pytest.param("DTYPE", "int8", "expected one of auto, float32, bfloat16, float16, got 'int8'", id="dtype"),
        pytest.param("DEVICE", "gpu", "expected auto, cpu, cuda or cuda:N, got 'gpu'", id="device"),
        pytest.param("DEVICE", "cuda:", "expected auto, cpu, cuda or cuda:N, got 'cuda:'", id="no number"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(name, value, error):
    with pytest.raises(settings.Unusable) as caught:
        settings.Settings.of({f"TEXT_GENERATION_{name}": value})
    assert str(caught.value) == f"TEXT_GENERATION_{name}: {error}"
