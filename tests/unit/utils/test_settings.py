"""Settings from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobile_sam_onnx.download import cache_directory
from utils.settings import Settings, SettingsError, default_cache_dir


def test_an_empty_environment_gives_the_defaults():
    assert Settings.from_environment({}) == Settings()


def test_variables_are_converted_to_their_type():
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


def test_an_empty_variable_is_ignored():
    assert Settings.from_environment({"MOBILE_SAM_MAX_BODY_BYTES": ""}).max_body_bytes == Settings().max_body_bytes


@pytest.mark.parametrize("text", ["many", "0", "-5", "1.5", "nan"])
@pytest.mark.parametrize("name", ["MOBILE_SAM_MAX_BODY_BYTES", "MOBILE_SAM_MAX_IMAGE_PIXELS"])
def test_an_invalid_number_is_rejected(name, text):
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({name: text})
    assert str(caught.value) == f"{name}: expected a positive whole number, got '{text}'"


@pytest.mark.parametrize("engine", ["auto", "onnxruntime", "openvino", "openvino-bf16", "tensorrt"])
def test_engines_are_accepted(engine):
    assert Settings.from_environment({"MOBILE_SAM_ENGINE": engine}).engine == engine


def test_an_unknown_engine_is_rejected():
    with pytest.raises(SettingsError, match=r"expected one of auto, onnxruntime, openvino, .*, got 'fast'"):
        Settings.from_environment({"MOBILE_SAM_ENGINE": "fast"})


def test_threads_and_instances_are_whole_numbers():
    names = ("THREADS", "ENCODERS", "ORCHESTRATORS")
    settings = Settings.from_environment({f"MOBILE_SAM_{name}": "3" for name in names})
    assert (settings.threads, settings.encoders, settings.orchestrators) == (3, 3, 3)


@pytest.mark.parametrize("text", ["soon", "0", "-5", "nan", "inf"])
def test_an_invalid_time_is_rejected(text):
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({"MOBILE_SAM_INFERENCE_TIMEOUT": text})
    assert str(caught.value) == f"MOBILE_SAM_INFERENCE_TIMEOUT: expected a positive number, got '{text}'"


def test_a_cache_of_0_bytes_is_accepted():
    assert Settings.from_environment({"MOBILE_SAM_EMBEDDING_CACHE_BYTES": "0"}).embedding_cache_bytes == 0
    with pytest.raises(SettingsError, match="expected a positive whole number or 0, got '-1'"):
        Settings.from_environment({"MOBILE_SAM_EMBEDDING_CACHE_BYTES": "-1"})


@pytest.mark.parametrize("url", ["redis://localhost:6379/0", "rediss://host", "unix:///run/redis.sock"])
def test_redis_urls_are_accepted(url):
    assert Settings.from_environment({"MOBILE_SAM_REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize("text", ["localhost:6379", "http://localhost:6379", "REDIS"])
def test_an_invalid_redis_url_is_rejected(text):
    with pytest.raises(SettingsError, match="MOBILE_SAM_REDIS_URL: expected a URL with redis://, rediss://, unix://"):
        Settings.from_environment({"MOBILE_SAM_REDIS_URL": text})


@pytest.mark.parametrize("text", ["60", "1e9"])
def test_a_timeout_above_the_triton_clients_is_rejected(text):
    with pytest.raises(SettingsError, match="MOBILE_SAM_INFERENCE_TIMEOUT"):
        Settings.from_environment({"MOBILE_SAM_INFERENCE_TIMEOUT": text})


def test_both_packages_use_the_same_cache_folder(monkeypatch, tmp_path):
    for name, value in (("MOBILE_SAM_CACHE_DIR", "~/mine"), ("XDG_CACHE_HOME", str(tmp_path)), ("HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
        assert Settings.from_environment().cache_dir == cache_directory()
        monkeypatch.delenv(name)


def test_the_cache_folder_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "mobile-sam-triton"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "mobile-sam-triton"


@pytest.mark.parametrize("text", ["https://a.example", "https://a.example, http://b.example:8080", "*"])
def test_cors_origins_are_accepted(text):
    assert Settings.from_environment({"MOBILE_SAM_CORS_ORIGINS": text}).cors_origins == text


@pytest.mark.parametrize("text", ["a.example", "https://a.example/", "https://a.example/page", "https://a.example,,"])
def test_an_invalid_cors_origin_is_rejected(text):
    with pytest.raises(SettingsError, match=r"MOBILE_SAM_CORS_ORIGINS: expected origins such as https://a\.example"):
        Settings.from_environment({"MOBILE_SAM_CORS_ORIGINS": text})


def test_metrics_access_is_open_or_key():
    assert Settings.from_environment({"MOBILE_SAM_METRICS": "key"}).metrics == "key"
    with pytest.raises(SettingsError, match="expected open or key, got 'shut'"):
        Settings.from_environment({"MOBILE_SAM_METRICS": "shut"})


@pytest.mark.parametrize("name", ["MOBILE_SAM_API_KEYS", "MOBILE_SAM_API_KEYS_FILE"])
def test_empty_api_keys_are_rejected(name):
    with pytest.raises(SettingsError, match=f"{name}: expected API keys, got an empty value"):
        Settings.from_environment({name: ""})


@pytest.mark.parametrize(
    "text", ["s3://bucket/models", "s3://http://127.0.0.1:9000/bucket/models", "gs://bucket", "as://a/b"]
)
def test_a_remote_repository_is_not_a_folder(text):
    settings = Settings.from_environment({"MOBILE_SAM_MODEL_REPOSITORY": text})
    assert settings.model_repository == text
    assert settings.repository_in(Path("/here")) is None


def test_a_relative_repository_is_resolved():
    assert Settings().repository_in(Path("/here")) == Path("/here/model_repository")
    absolute = Settings.from_environment({"MOBILE_SAM_MODEL_REPOSITORY": "/models"})
    assert absolute.repository_in(Path("/here")) == Path("/models")


def test_an_unknown_storage_is_rejected():
    with pytest.raises(
        SettingsError, match="expected a folder, or a URL with s3://, gs://, as://, got 'ftp://host/models'"
    ):
        Settings.from_environment({"MOBILE_SAM_MODEL_REPOSITORY": "ftp://host/models"})


@pytest.mark.parametrize("mode", ["none", "explicit", "poll"])
def test_control_modes_are_accepted(mode):
    assert Settings.from_environment({"MOBILE_SAM_MODEL_CONTROL_MODE": mode}).model_control_mode == mode


def test_an_unknown_control_mode_is_rejected():
    with pytest.raises(SettingsError, match="expected none, explicit or poll, got 'always'"):
        Settings.from_environment({"MOBILE_SAM_MODEL_CONTROL_MODE": "always"})


@pytest.mark.parametrize("name", ["MOBILE_SAM_ADMIN_KEYS", "MOBILE_SAM_ADMIN_KEYS_FILE"])
def test_empty_admin_keys_are_rejected(name):
    with pytest.raises(SettingsError, match=f"{name}: expected API keys, got an empty value"):
        Settings.from_environment({name: ""})


def test_image_origins_and_networks_are_accepted():
    text = "https://images.example/, http://localhost:9000,10.20.0.0/16"
    origins = Settings.from_environment({"MOBILE_SAM_IMAGE_ORIGINS": text}).image_origins
    assert origins == ("https://images.example", "http://localhost:9000", "10.20.0.0/16")


@pytest.mark.parametrize(
    "text", ["images.example", "https://a.example/page", "ftp://a.example", "https://a@b.example", "10.20.0.1/16", "*"]
)
def test_invalid_image_origins_are_rejected(text):
    with pytest.raises(
        SettingsError, match=r"MOBILE_SAM_IMAGE_ORIGINS: expected origins such as https://images\.example"
    ):
        Settings.from_environment({"MOBILE_SAM_IMAGE_ORIGINS": text})


def test_label_studio_is_an_http_url():
    names = {"MOBILE_SAM_LABEL_STUDIO_URL": "http://localhost:8080/ls/"}
    assert Settings.from_environment(names).label_studio_url == "http://localhost:8080/ls"
    for text in ("localhost:8080", "http://", "http://a:b@c", "http://a:99999"):
        with pytest.raises(SettingsError, match="MOBILE_SAM_LABEL_STUDIO_URL: expected an http or https URL"):
            Settings.from_environment({"MOBILE_SAM_LABEL_STUDIO_URL": text})
