"""What settings say together about who may call the service, and the line that says that it is
ready.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from utils.api.info import describe
from utils.app import (
    _access,
    _check_deployment,
    _Configuration,
    _publish_to_orchestrator,
    _queue,
    _ready_line,
)
from utils.errors import TooManyRequests
from utils.settings import Settings, SettingsError
from utils.triton.machine import Machine
from utils.triton.plan import MOBILE_SAM_ENGINES, make_plan

KEY, OTHER = "a:0123456789abcdef", "b:fedcba9876543210"


def test_metrics_cannot_need_a_key_without_keys():
    with pytest.raises(SettingsError, match="MOBILE_SAM_METRICS=key needs API keys"):
        _access(Settings(metrics="key"))
    keys, rate, admin_keys = _access(Settings(metrics="key", api_keys=KEY, admin_keys=OTHER))
    assert keys
    assert admin_keys
    assert rate  # keys may have limits of their own


async def test_rate_of_a_key_needs_no_common_rate():
    assert _access(Settings())[1] is None
    keys, rate, _ = _access(Settings(api_keys=f"{KEY} 1/day,{OTHER}"))
    assert keys
    assert rate
    for name in ("b", "b", "a"):
        await rate.check(name, "10.0.0.1")
    with pytest.raises(TooManyRequests, match="1 request per day"):
        await rate.check("a", "10.0.0.2")


def test_operators_key_cannot_be_a_callers():
    with pytest.raises(SettingsError, match="one key is in both lists"):
        _access(Settings(api_keys=KEY, admin_keys=KEY))


def test_ready_line_names_the_encoders_engine(tmp_path):
    laptop = Machine(cores=2, bf16=False, gpu_memory_bytes=(), openvino=True, memory_bytes=2**35)
    lines = [
        _ready_line(tmp_path, make_plan(machine, MOBILE_SAM_ENGINES, Settings()), Settings())
        for machine in (replace(laptop, gpu_memory_bytes=(80 * 10**9,)), laptop)
    ]
    assert [line.rpartition("encoder ")[2] for line in lines] == ["cuda f32", "openvino f32"]


def test_a_clients_key_without_keys_of_the_service_is_warned_of(monkeypatch, caplog):
    for name in ("clean_up", "remove_abandoned", "check_shared_memory"):
        monkeypatch.setattr(f"utils.app.{name}", lambda *_: None)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", KEY)
    laptop = Machine(cores=2, bf16=False, gpu_memory_bytes=(), openvino=True, memory_bytes=2**35)
    plan = make_plan(laptop, MOBILE_SAM_ENGINES, Settings())
    _check_deployment(None, "s3://bucket/models", plan, Settings(api_keys=KEY))
    assert "MOBILE_SAM_API_KEY is" not in caplog.text
    _check_deployment(None, "s3://bucket/models", plan, Settings())
    assert (
        "MOBILE_SAM_API_KEY is a key for clients and does not protect this service" in caplog.text
    )


def test_services_with_other_weights_from_the_same_repository_have_queues_of_their_own(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("MOBILE_SAM_EMBEDDING_CACHE_DIR", str(tmp_path))
    laptop = Machine(cores=2, bf16=False, gpu_memory_bytes=(), openvino=True, memory_bytes=2**35)
    plan = make_plan(laptop, MOBILE_SAM_ENGINES, Settings())
    source = Path("model_repository")
    configuration = _Configuration(Settings(), source, tmp_path, plan, None, None, None)

    def queue_file(fingerprint: str) -> Path:
        record = tmp_path / "mobile_sam" / "1" / "weights.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"fingerprint": fingerprint}))
        return _queue(configuration)._file

    assert queue_file("a") == queue_file("a") != queue_file("b")


@pytest.mark.parametrize(
    ("repository", "pixels"),
    [("model_repository", None), ("s3://bucket/models", "25000000")],
    ids=["local", "remote"],
)
def test_orchestrator_gets_the_settings_as_the_service_understood_them(
    monkeypatch, tmp_path, repository, pixels
):
    names = ("MAX_IMAGE_PIXELS", "MAX_ANSWER_BYTES", "EMBEDDING_CACHE_BYTES", "EMBEDDING_CACHE_DIR")
    for name in names:
        monkeypatch.setenv(f"MOBILE_SAM_{name}", "")
    monkeypatch.delenv("MOBILE_SAM_MAX_IMAGE_PIXELS")
    monkeypatch.setenv("MOBILE_SAM_MAX_ANSWER_BYTES", "1_000_000")
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MOBILE_SAM_MODEL_REPOSITORY", repository)
    settings = Settings.from_environment()
    laptop = Machine(cores=2, bf16=False, gpu_memory_bytes=(), openvino=True, memory_bytes=2**35)
    plan = make_plan(laptop, MOBILE_SAM_ENGINES, settings)
    source = settings.repository_in(tmp_path)
    configuration = _Configuration(settings, source, repository, plan, None, None, None)
    info = describe(source, settings, key_needed=False)
    _publish_to_orchestrator(configuration, info)
    published = [os.environ.get(f"MOBILE_SAM_{name}") for name in names]
    assert published == [pixels, "1000000", "", str(tmp_path / "embeddings")]
