"""Settings of the text generation example."""

from __future__ import annotations

import pytest

from tests.unit.examples.text_generation.modules import load

settings = load("text_generation_settings")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, ("gpt2", "auto", "auto"), id="unset"),
        pytest.param({"MODEL": "", "DTYPE": "", "DEVICE": ""}, ("gpt2", "auto", "auto"), id="empty"),
        pytest.param(
            {"MODEL": "tiiuae/falcon-7b", "DTYPE": "bfloat16", "DEVICE": "cuda:1"},
            ("tiiuae/falcon-7b", "bfloat16", "cuda:1"),
            id="set",
        ),
    ],
)
def test_settings_are_read_from_the_environment(environment, expected):
    variables = {f"TEXT_GENERATION_{name}": value for name, value in environment.items()}
    assert settings.Settings.of(variables) == settings.Settings(*expected)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        pytest.param("DTYPE", "int8", "expected one of auto, float32, bfloat16, float16, got 'int8'", id="dtype"),
        pytest.param("DEVICE", "gpu", "expected auto, cpu, cuda or cuda:N, got 'gpu'", id="device"),
        pytest.param("DEVICE", "cuda:", "expected auto, cpu, cuda or cuda:N, got 'cuda:'", id="missing GPU number"),
    ],
)
def test_invalid_setting_is_rejected_and_named(name, value, error):
    with pytest.raises(settings.SettingsError) as caught:
        settings.Settings.of({f"TEXT_GENERATION_{name}": value})
    assert str(caught.value) == f"TEXT_GENERATION_{name}: {error}"
