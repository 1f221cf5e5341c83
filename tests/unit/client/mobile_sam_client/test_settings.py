"""Arguments of a client: API key, URL, timeout, retries."""

from __future__ import annotations

import pytest

from tests.unit.client.mobile_sam_client.fake_service import INFO, json_reply, problem_reply

KEY = "a-key-of-16-characters"


@pytest.mark.parametrize("text", [KEY, f" {KEY}\n"], ids=["plain", "surrounding whitespace"])
def test_key_is_sent_as_bearer_token(make, service, text):
    service.reply_with(json_reply(INFO))
    make(service, api_key=text).info()
    assert service.requests[0].headers["Authorization"] == f"Bearer {KEY}"


def test_key_is_read_from_environment_at_creation(make, service, monkeypatch):
    service.reply_with(json_reply(INFO))
    monkeypatch.setenv("MOBILE_SAM_API_KEY", KEY)
    client = make(service)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", "another")
    client.info()
    assert service.requests[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("given", "environment"), [("", KEY), (None, ""), (None, None)])
def test_no_authorization_without_key(make, service, monkeypatch, given, environment):
    if environment is not None:
        monkeypatch.setenv("MOBILE_SAM_API_KEY", environment)
    service.reply_with(json_reply(INFO))
    make(service, api_key=given).info()
    assert "Authorization" not in service.requests[0].headers


def test_netrc_does_not_override_key(make, service, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    service.reply_with(json_reply(INFO))
    make(service, api_key=KEY).info()
    assert service.requests[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["geheimer-schlüssel", "two\nlines-of-a-key"])
def test_invalid_key_is_rejected_without_showing_it(make, service, monkeypatch, key):
    with pytest.raises(ValueError, match=r"^api_key: expected printable ASCII$"):
        make(service, api_key=key)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", key)
    with pytest.raises(ValueError, match=r"^MOBILE_SAM_API_KEY: expected printable ASCII$"):
        make(service)


def test_errors_do_not_contain_the_key(make, service):
    service.reply_with(problem_reply(401, "unauthorized", "expected an API key"))
    client = make(service, api_key=KEY)
    with pytest.raises(Exception, match="expected an API key") as raised:
        client.info()
    assert KEY not in f"{raised.value!r} {raised.value} {vars(raised.value)}"


@pytest.mark.parametrize(
    "url", ["localhost:3000", "127.0.0.1", "ftp://a.example", "http://", "http://a.example/?x=1", "http://a:b:c", ""]
)
def test_invalid_url_is_rejected(make, service, url):
    with pytest.raises(ValueError, match=r"^url: expected a URL such as http://127\.0\.0\.1:3000, "):
        make(service, url=url)


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
def test_port_out_of_range_is_rejected(make, service, port):
    with pytest.raises(ValueError, match=f"url: expected a port from 1 to 65535, got {port}"):
        make(service, url=f"http://a.example:{port}")


def test_url_with_password_is_rejected_without_showing_it(make, service):
    with pytest.raises(ValueError, match="pass API keys as api_key") as raised:
        make(service, url="http://me:secret@a.example")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), None, "5"])
def test_invalid_timeout_is_rejected(make, service, timeout):
    with pytest.raises(ValueError, match="timeout: expected a positive, finite number of seconds"):
        make(service, timeout=timeout)


@pytest.mark.parametrize("retries", [-1, 1.5, None])
def test_invalid_retries_are_rejected(make, service, retries):
    with pytest.raises(ValueError, match=f"retries: expected an integer of at least 0, got {retries}"):
        make(service, retries=retries)
