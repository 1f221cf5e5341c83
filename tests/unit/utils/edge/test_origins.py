"""Requests of foreign web pages are told from others by Origin and Host."""

import pytest

from utils.edge.origins import Origins
from utils.errors import ForeignPage

PAGE = "https://annotate.example"


def check(host: str, *origins: str, allowed: Origins | None = None) -> None:
    headers = [(b"host", host.encode()), *((b"origin", origin.encode()) for origin in origins)]
    (allowed or Origins()).check(headers)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:3000", "localhost:3000"),
        ("http://[::1]:3000", "[::1]:3000"),
        ("https://Box.local", "box.LOCAL"),
        ("https://box.local", "box.local:443"),
        ("http://box.local:80", "box.local"),
    ],
)
def test_pages_own_origin_is_accepted_with_any_scheme_and_default_port(origin, host):
    check(host, origin)


FOREIGN_ORIGINS = """
https://evil.example null localhost:3000 http://localhost http://localhost:30000 http://localhost:3001
http://localhost:3000.evil.example http://evil.example/://localhost:3000 http://evil@localhost:3000
http://127.0.0.1:3000
"""


@pytest.mark.parametrize("origin", ["", *FOREIGN_ORIGINS.split()])
def test_foreign_origin_is_refused(origin):
    with pytest.raises(ForeignPage, match="MOBILE_SAM_CORS_ORIGINS"):
        check("localhost:3000", origin)


@pytest.mark.parametrize("origins", [[PAGE, "null"], ["*"]])
def test_origins_in_the_setting_are_accepted(origins):
    for origin in (PAGE, "null"):
        check("localhost", origin, allowed=Origins(origins))


@pytest.mark.parametrize(
    ("host", "origins"),
    [
        pytest.param("localhost:3000", ["http://localhost:3000", PAGE], id="second-origin"),
        pytest.param("localhost:80", ["https://localhost"], id="default-port-of-another-scheme"),
        pytest.param("", [PAGE], id="no-host"),
    ],
)
def test_every_origin_is_compared_with_the_host(host, origins):
    with pytest.raises(ForeignPage):
        check(host, *origins)


PRIVATE_HOSTS = """
127.0.0.1:3000 10.1.2.3 [::1]:3000 [2001:db8::1] [::ffff:10.1.2.3]:3000 localhost.:3000 mobile-sam:3000 app.localhost
BOX.local:3000 host.docker.internal:3000 mobile-sam.vision.svc:3000 mobile-sam.vision.svc.cluster.local:3000
"""
STRANGERS_HOSTS = """
evil.example evil.example.:3000 127.0.0.1.evil.example localhost.evil.example evil@127.0.0.1
127.0.0.1:3000@evil.example 127.0.0.1:a.evil.example evil.example/.local?: evil.notlocal box.svc.example
"""


@pytest.mark.parametrize("host", PRIVATE_HOSTS.split())
def test_host_that_no_stranger_can_have_is_accepted(host):
    check(host)


@pytest.mark.parametrize("host", STRANGERS_HOSTS.split())
def test_host_that_a_stranger_can_have_is_refused_with_the_settings_name(host):
    with pytest.raises(ForeignPage, match="MOBILE_SAM_HOSTS") as refused:
        check(host)
    assert host not in refused.value.logged


def test_machines_own_name_is_accepted(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Box.lab.example")
    monkeypatch.setattr("socket.getfqdn", lambda: "box.campus.example")
    origins = Origins()
    check("box.lab.example:3000", allowed=origins)
    with pytest.raises(ForeignPage):
        check("box.campus.example", allowed=origins)
    origins.look_up_own_name()
    check("box.campus.example", allowed=origins)


@pytest.mark.parametrize("host", ["Segment.example:3000", "a.b.example.org"])
def test_hosts_in_the_setting_are_accepted(host):
    allowed = Origins(hosts=("Segment.example", "*.example.org"))
    check(host, allowed=allowed)
    with pytest.raises(ForeignPage):
        check("example.org", allowed=allowed)


def test_every_host_is_accepted_with_keys_but_not_every_origin():
    allowed = Origins(hosts=None)
    check("segment.example", "https://segment.example", allowed=allowed)
    with pytest.raises(ForeignPage):
        check("segment.example", "https://evil.example", allowed=allowed)
