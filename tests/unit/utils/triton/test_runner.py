"""Flags that the runner gives `tritonserver`."""

import pytest

from utils.triton.run import KEY_HEADER, VARIABLE, RunState
from utils.triton.runner import server_flags


@pytest.fixture(autouse=True)
def new_service(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")


def test_flags_bind_loopback_and_restrict_control_apis():
    flags = server_flags()
    assert "--metrics-address=127.0.0.1" in flags
    restricted = next(flag for flag in flags if flag.startswith("--http-restricted-api="))
    apis, key = restricted.removeprefix("--http-restricted-api=").split(":", 1)
    assert {"model-repository", "shared-memory", "logging"} <= set(apis.split(","))
    header, secret = key.split("=", 1)
    assert header == KEY_HEADER
    assert len(secret) >= 32
    assert RunState.current().key_header == {header: secret}


def test_other_services_have_neither_key_nor_own_configuration():
    flags = server_flags("poll", restricted="", auto_complete=True)
    assert not any("restricted" in flag for flag in flags)
    assert "--disable-auto-complete-config" in set(server_flags()) - set(flags)
    assert {"--model-control-mode=poll", "--repository-poll-secs=15"} <= set(flags)
