"""Settings from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobile_sam_onnx.download import cache_directory
from utils.settings import Settings, SettingsError, default_cache_dir


def test_an_empty_environment_gives_the_defaults():
    assert Settings.from_environment({}) == Settings()


def test_variables_are_applied_in_their_type():
    settings = Settings.from_environment(
        {
            "MOBILE_SAM_MODEL_REPOSITORY": "/models",
            "MOBILE_SAM_MAX_BODY_BYTES": "1000",
            "MOBILE_SAM_INFERENCE_TIMEOUT": "2.5",
        }
    )
    assert settings.model_repository == Path("/models")
    assert settings.max_body_bytes == 1000
    assert settings.inference_timeout == 2.5


def test_an_empty_variable_is_left_out():
    assert Settings.from_environment({"MOBILE_SAM_MAX_BODY_BYTES": ""}).max_body_bytes == Settings().max_body_bytes


@pytest.mark.parametrize("text", ["many", "0", "-5", "1.5", "nan"])
@pytest.mark.parametrize("name", ["MOBILE_SAM_MAX_BODY_BYTES", "MOBILE_SAM_MAX_IMAGE_PIXELS"])
def test_a_value_that_cannot_be_used_is_refused_by_name(name, text):
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({name: text})
    assert str(caught.value) == f"{name}: expected a positive whole number, got '{text}'"


@pytest.mark.parametrize("engine", ["auto", "onnxruntime", "openvino", "openvino-bf16", "tensorrt"])
def test_an_engine_is_set_by_name(engine):
    assert Settings.from_environment({"MOBILE_SAM_ENGINE": engine}).engine == engine


def test_an_engine_that_is_none_is_refused_with_those_there_are():
    with pytest.raises(SettingsError, match=r"expected one of auto, onnxruntime, openvino, .*, got 'fast'"):
        Settings.from_environment({"MOBILE_SAM_ENGINE": "fast"})


def test_threads_and_instances_are_whole_numbers():
    names = ("THREADS", "ENCODERS", "ORCHESTRATORS")
    settings = Settings.from_environment({f"MOBILE_SAM_{name}": "3" for name in names})
    assert (settings.threads, settings.encoders, settings.orchestrators) == (3, 3, 3)


@pytest.mark.parametrize("text", ["soon", "0", "-5", "nan", "inf"])
def test_a_time_that_cannot_be_used_is_refused(text):
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({"MOBILE_SAM_INFERENCE_TIMEOUT": text})
    assert str(caught.value) == f"MOBILE_SAM_INFERENCE_TIMEOUT: expected a positive number, got '{text}'"


def test_a_cache_of_0_bytes_is_none():
    assert Settings.from_environment({"MOBILE_SAM_EMBEDDING_CACHE_BYTES": "0"}).embedding_cache_bytes == 0
    with pytest.raises(SettingsError, match="expected a positive whole number or 0, got '-1'"):
        Settings.from_environment({"MOBILE_SAM_EMBEDDING_CACHE_BYTES": "-1"})


@pytest.mark.parametrize("url", ["redis://localhost:6379/0", "rediss://host", "unix:///run/redis.sock"])
def test_a_redis_is_named_by_its_url(url):
    assert Settings.from_environment({"MOBILE_SAM_REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize("text", ["localhost:6379", "http://localhost:6379", "REDIS"])
def test_what_is_no_url_of_a_redis_is_refused(text):
    with pytest.raises(SettingsError, match="MOBILE_SAM_REDIS_URL: expected a URL with redis://, rediss://, unix://"):
        Settings.from_environment({"MOBILE_SAM_REDIS_URL": text})


@pytest.mark.parametrize("text", ["60", "1e9"])
def test_a_timeout_that_tritons_client_would_cut_short_is_refused(text):
    with pytest.raises(SettingsError, match="MOBILE_SAM_INFERENCE_TIMEOUT"):
        Settings.from_environment({"MOBILE_SAM_INFERENCE_TIMEOUT": text})


def test_both_packages_keep_their_cache_in_one_place(monkeypatch, tmp_path):
    for name, value in (("MOBILE_SAM_CACHE_DIR", "~/mine"), ("XDG_CACHE_HOME", str(tmp_path)), ("HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
        assert Settings.from_environment().cache_dir == cache_directory()
        monkeypatch.delenv(name)


def test_the_cache_follows_the_desktop_standard(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "mobile-sam-triton"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "mobile-sam-triton"


@pytest.mark.parametrize("text", ["https://a.example", "https://a.example, http://b.example:8080", "*"])
def test_origins_are_given_as_browsers_name_them(text):
    assert Settings.from_environment({"MOBILE_SAM_CORS_ORIGINS": text}).cors_origins == text


@pytest.mark.parametrize("text", ["a.example", "https://a.example/", "https://a.example/page", "https://a.example,,"])
def test_what_is_no_origin_is_refused(text):
    with pytest.raises(SettingsError, match=r"MOBILE_SAM_CORS_ORIGINS: expected origins such as https://a\.example"):
        Settings.from_environment({"MOBILE_SAM_CORS_ORIGINS": text})


def test_metrics_are_open_or_for_holders_of_a_key():
    assert Settings.from_environment({"MOBILE_SAM_METRICS": "key"}).metrics == "key"
    with pytest.raises(SettingsError, match="expected open or key, got 'shut'"):
        Settings.from_environment({"MOBILE_SAM_METRICS": "shut"})


@pytest.mark.parametrize("name", ["MOBILE_SAM_API_KEYS", "MOBILE_SAM_API_KEYS_FILE"])
def test_keys_that_are_set_to_nothing_are_refused_and_do_not_open_the_service(name):
    with pytest.raises(SettingsError, match=f"{name}: expected API keys, got an empty value"):
        Settings.from_environment({name: ""})


@pytest.mark.parametrize(
    "text", ["s3://bucket/models", "s3://http://127.0.0.1:9000/bucket/models", "gs://bucket", "as://a/b"]
)
def test_a_remote_repository_is_left_to_triton(text):
    settings = Settings.from_environment({"MOBILE_SAM_MODEL_REPOSITORY": text})
    assert settings.model_repository == text
    assert settings.repository_in(Path("/here")) is None


def test_a_folder_is_taken_from_the_services_own():
    assert Settings().repository_in(Path("/here")) == Path("/here/model_repository")
    absolute = Settings.from_environment({"MOBILE_SAM_MODEL_REPOSITORY": "/models"})
    assert absolute.repository_in(Path("/here")) == Path("/models")


def test_a_storage_that_triton_does_not_know_is_refused():
    with pytest.raises(
        SettingsError, match="expected a folder, or a URL with s3://, gs://, as://, got 'ftp://host/models'"
    ):
        Settings.from_environment({"MOBILE_SAM_MODEL_REPOSITORY": "ftp://host/models"})


@pytest.mark.parametrize("mode", ["none", "explicit", "poll"])
def test_a_control_mode_is_tritons(mode):
    assert Settings.from_environment({"MOBILE_SAM_MODEL_CONTROL_MODE": mode}).model_control_mode == mode


def test_another_control_mode_is_refused():
    with pytest.raises(SettingsError, match="expected none, explicit or poll, got 'always'"):
        Settings.from_environment({"MOBILE_SAM_MODEL_CONTROL_MODE": "always"})


@pytest.mark.parametrize("name", ["MOBILE_SAM_ADMIN_KEYS", "MOBILE_SAM_ADMIN_KEYS_FILE"])
def test_operators_keys_that_are_empty_are_a_mistake(name):
    with pytest.raises(SettingsError, match=f"{name}: expected API keys, got an empty value"):
        Settings.from_environment({name: ""})
