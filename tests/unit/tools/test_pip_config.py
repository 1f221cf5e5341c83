"""Translation of pip's configuration for uv and for image builds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import pip_config

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


@pytest.fixture(autouse=True)
def _no_default_certificates(monkeypatch):
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pip_conf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only source of pip's configuration."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    return tmp_path / "pip.conf"


def test_read_returns_the_configuration_of_the_real_pip(pip_conf, monkeypatch):
    pip_conf.write_text(
        "[global]\nquiet = 2\nindex-url = https://one.example/it's\nfind-links =\n    /a\n    /b\nproxy = p.example\n"
        "[install]\nindex-url = https://two.example/it's\n[download]\nindex-url = https://three.example/\n"
    )
    monkeypatch.setenv("PIP_TRUSTED_HOST", "one.example two.example")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "180")
    expected = {
        "index-url": "https://two.example/it's",
        "find-links": "/a /b",
        "proxy": "p.example",
        "trusted-host": "one.example two.example",
        "timeout": "180",
    }
    assert pip_config.read(Path(sys.executable)).items() >= expected.items()


def test_an_invalid_configuration_file_is_an_error(pip_conf):
    pip_conf.write_text("index-url = https://one.example/simple\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        pip_config.read(Path(sys.executable))
    assert "pip.conf" in raised.value.stderr


@pytest.mark.parametrize(
    ("name", "value", "variables"),
    [
        ("index-url", "https://me:pw@one.example/simple", {"UV_DEFAULT_INDEX": "https://me:pw@one.example/simple"}),
        ("extra-index-url", "https://a.example /b", {"UV_INDEX": "https://a.example /b"}),
        ("proxy", "me:pw@proxy.example:3128", dict.fromkeys(PROXIES, "http://me:pw@proxy.example:3128")),
        ("proxy", "https://proxy.example", dict.fromkeys(PROXIES, "https://proxy.example")),
        ("timeout", "15", {"UV_HTTP_TIMEOUT": "15"}),
        ("cache-dir", "/big/pip", {"UV_CACHE_DIR": "/big/pip/uv"}),
        ("quiet", "1", {}),
    ],
)
def test_option_becomes_a_variable(name, value, variables):
    arguments, found = pip_config.for_uv({"cert": "/ca.crt", name: value})
    assert arguments == []
    assert found == {"UV_INDEX_STRATEGY": "unsafe-best-match", "SSL_CERT_FILE": "/ca.crt", **variables}


@pytest.mark.parametrize(("value", "arguments"), [("yes", ["--no-index"]), ("false", [])])
def test_no_index_becomes_an_argument(value, arguments):
    assert pip_config.for_uv({"no-index": value})[0] == arguments


def test_missing_find_links_are_dropped(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my wheels").mkdir()
    (tmp_path / "wheels").mkdir()
    links = [
        str(tmp_path / "missing"),
        f"file://{tmp_path}/my%20wheels",
        f"file://{tmp_path}/missing",
        "~/wheels",
        "https://links.example/page",
    ]
    _, variables = pip_config.for_uv({"find-links": " ".join(links)})
    assert variables["UV_FIND_LINKS"] == ",".join([links[1], str(tmp_path / "wheels"), links[4]])


def test_certificates_may_be_a_folder(tmp_path):
    assert pip_config.for_uv({"cert": str(tmp_path)})[1]["SSL_CERT_DIR"] == str(tmp_path)


def test_certificates_default_to_those_of_requests(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/a/ca.crt")
    assert pip_config.for_uv({})[1]["SSL_CERT_FILE"] == "/a/ca.crt"
    assert pip_config.for_uv({"cert": "/b/ca.crt"})[1]["SSL_CERT_FILE"] == "/b/ca.crt"


@pytest.mark.parametrize(("certificates", "expected"), [(["ca.pem"], "1"), ([], None)], ids=["some", "none"])
def test_certificates_default_to_those_of_the_system(monkeypatch, tmp_path, certificates, expected):
    for name in certificates:
        (tmp_path / name).touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert pip_config.for_uv({})[1].get("UV_SYSTEM_CERTS") == expected


@pytest.mark.parametrize(
    ("name", "value"), [("constraint", "/etc/pip/constraint.txt"), ("user", "yes"), ("timeout", "0.5"), ("new", "1")]
)
def test_an_unsupported_option_is_named(name, value):
    with pytest.raises(pip_config.UnsupportedOptionError, match=f"^{name}$"):
        pip_config.for_uv({name: value})


def test_export_has_certificates_and_settings_but_no_local_folders(tmp_path):
    (tmp_path / "own.crt").write_text("certificates")
    configured = {
        "cert": str(tmp_path / "own.crt"),
        "extra-index-url": "file:///somewhere https://one.example/simple /wheels",
        "find-links": "/wheels",
        "proxy": "proxy.example:3128",
        "quiet": "1",
    }
    pip_config.export(configured, tmp_path)
    assert (tmp_path / "ca.crt").read_text() == "certificates"
    assert (tmp_path / "pip.conf").read_text() == (
        "[global]\ncert = /run/secrets/ca.crt\n"
        "extra-index-url = https://one.example/simple\nproxy = proxy.example:3128\n"
    )
