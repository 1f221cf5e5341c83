"""Settings of the orchestrator's models: defaults, parameters in config.pbtxt, environment
variables.
"""

import pytest

from orchestrator.settings import DEFAULTS, KNOWN_IMAGES, OrchestratorSettings


def test_parameters_override_defaults_and_variables_override_both():
    parameters = {"max_image_pixels": "99", "redis_url": "redis://a", "INFERENCE_NUM_THREADS": "4"}
    settings = OrchestratorSettings.from_parameters(parameters, {})
    assert (settings.max_image_pixels, settings.redis_url) == (99, "redis://a")
    assert settings.max_answer_bytes == DEFAULTS.max_answer_bytes
    environment = {"MOBILE_SAM_MAX_IMAGE_PIXELS": "100", "MOBILE_SAM_REDIS_URL": ""}
    settings = OrchestratorSettings.from_parameters(parameters, environment)
    assert (settings.max_image_pixels, settings.redis_url) == (100, "redis://a")


def test_variables_do_not_override_what_the_service_writes_into_a_configuration():
    parameters = {"nice": "5", "encoder_engine": "cuda f32", "answers": KNOWN_IMAGES}
    names = ("NICE", "ENCODER_ENGINE", "ANSWERS")
    environment = {f"MOBILE_SAM_{name}": "7" for name in names}
    settings = OrchestratorSettings.from_parameters(parameters, environment)
    assert (settings.nice, settings.encoder_engine, settings.encodes) == (5, "cuda f32", False)


@pytest.mark.parametrize(
    ("name", "text", "minimum"),
    [
        ("max_image_pixels", "0", 1),
        ("max_answer_bytes", "many", 1),
        ("decoder_batch", "", 1),
        ("embedding_cache_bytes", "-1", 0),
    ],
)
def test_invalid_number_is_an_error_that_names_its_setting(name, text, minimum):
    message = f"^{name}: expected a whole number of at least {minimum}, got '{text}'$"
    with pytest.raises(ValueError, match=message):
        OrchestratorSettings.from_parameters({name: text}, {})
