"""Keys, addresses and limits that a client is made with."""

from __future__ import annotations

import pytest

from tests.unit.client.mobile_sam_client.fake_service import INFO, refuses, says_json

KEY = "a-key-of-16-characters"


@pytest.mark.parametrize("text", [KEY, f" {KEY}\n"], ids=["plain", "with the line end of a file"])
def test_a_key_is_sent_as_a_bearers(make, service, text):
    service.says(says_json(INFO))
    make(service, api_key=text).info()
    assert service.asked[0].headers["Authorization"] == f"Bearer {KEY}"


def test_a_key_is_taken_from_the_environment_when_the_client_is_made(make, service, monkeypatch):
    service.says(says_json(INFO))
    monkeypatch.setenv("MOBILE_SAM_API_KEY", KEY)
    client = make(service)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", "another")
    client.info()
    assert service.asked[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("given", "environment"), [("", KEY), (None, ""), (None, None)])
def test_without_a_key_none_is_sent(make, service, monkeypatch, given, environment):
    if environment is not None:
        monkeypatch.setenv("MOBILE_SAM_API_KEY", environment)
    service.says(says_json(INFO))
    make(service, api_key=given).info()
    assert "Authorization" not in service.asked[0].headers


def test_netrc_does_not_take_the_keys_place(make, service, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    service.says(says_json(INFO))
    make(service, api_key=KEY).info()
    assert service.asked[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["geheimer-schlüssel", "two\nlines-of-a-key"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(make, service, monkeypatch, key):
    with pytest.raises(ValueError, match=r"^api_key: expected printable ASCII$"):
        make(service, api_key=key)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", key)
    with pytest.raises(ValueError, match=r"^MOBILE_SAM_API_KEY: expected printable ASCII$"):
        make(service)


def test_a_key_stands_in_no_error(make, service):
    service.says(refuses(401, "unauthorized", "expected an API key"))
    client = make(service, api_key=KEY)
    with pytest.raises(Exception, match="expected an API key") as raised:
        client.info()
    assert KEY not in f"{raised.value!r} {raised.value} {vars(raised.value)}"


@pytest.mark.parametrize(
    "url", ["localhost:3000", "127.0.0.1", "ftp://a.example", "http://", "http://a.example/?x=1", "http://a:b:c", ""]
)
def test_what_is_no_address_is_refused(make, service, url):
    with pytest.raises(ValueError, match=r"^url: expected an address such as http://127\.0\.0\.1:3000, got "):
        make(service, url=url)


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
def test_a_port_that_there_is_not_is_refused(make, service, port):
    with pytest.raises(ValueError, match=f"url: expected a port of 1 to 65535, got {port}"):
        make(service, url=f"http://a.example:{port}")


def test_an_address_with_a_password_is_refused_and_not_shown(make, service):
    with pytest.raises(ValueError, match="a key goes into api_key") as raised:
        make(service, url="http://me:secret@a.example")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), None, "5"])
def test_a_time_limit_is_more_than_nothing(make, service, timeout):
    with pytest.raises(ValueError, match="timeout: expected seconds, more than 0"):
        make(service, timeout=timeout)


@pytest.mark.parametrize("retries", [-1, 1.5, None])
def test_retries_are_a_whole_number(make, service, retries):
    with pytest.raises(ValueError, match=f"retries: expected a whole number, 0 or more, got {retries}"):
        make(service, retries=retries)
