"""Flags that the runner gives `tritonserver`."""

import pytest

from utils.triton.run import KEY_HEADER, VARIABLE, Run
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
    assert Run.current().key_header == {header: secret}


def test_a_triton_without_restricted_apis_has_no_key():
    assert not any("restricted" in flag for flag in server_flags(restricted=""))


def test_auto_complete_is_off_by_default():
    flag = "--disable-auto-complete-config"
    assert flag in server_flags()
    assert flag not in server_flags(auto_complete=True)


def test_workers_inherit_key_prefix_and_port_of_their_service_only(monkeypatch):
    first = server_flags()
    assert server_flags() == first
    monkeypatch.delenv(VARIABLE)
    assert set(server_flags()) != set(first)
