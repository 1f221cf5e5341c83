"""Translation of pip's configuration for uv."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from utils import pip_config

# As pip prints it, sorted by name. The section `download` does not apply to `pip install`.
LISTING = """\
:env:.default-timeout='180'
:env:.extra-index-url='https://env.example/simple'
:env:.proxy=''
download.index-url='https://download.example/simple'
global.extra-index-url='https://global.example/simple'
global.find-links='\\n/wheels\\nhttps://links.example'
global.index-url='https://global.example/simple'
global.proxy='global.example:3128'
install.index-url="https://install.example/it's"
not a setting
"""


@pytest.fixture(autouse=True)
def _no_default_certificates(monkeypatch):
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def test_sections_have_pips_precedence():
    assert pip_config.settings(LISTING) == {
        "timeout": "180",
        "extra-index-url": "https://env.example/simple",
        "find-links": "\n/wheels\nhttps://links.example",
        "index-url": "https://install.example/it's",
        "proxy": "global.example:3128",
    }


def test_read_returns_the_configuration_of_the_real_pip(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text(
        "[global]\nquiet = 2\nindex-url = https://one.example/simple\nfind-links =\n    /a\n    /b\n"
        "[install]\nindex-url = https://two.example/simple\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_TRUSTED_HOST", "one.example two.example")
    configured = pip_config.read(Path(sys.executable))
    assert configured["index-url"] == "https://two.example/simple"
    assert configured["find-links"].split() == ["/a", "/b"]
    assert configured["trusted-host"] == "one.example two.example"


def test_an_invalid_configuration_file_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text("index-url = https://one.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    with pytest.raises(subprocess.CalledProcessError) as raised:
        pip_config.read(Path(sys.executable))
    assert "pip.conf" in raised.value.stderr


@pytest.mark.parametrize(
    ("name", "value", "variables"),
    [
        ("index-url", "https://me:pw@one.example/simple", {"UV_DEFAULT_INDEX": "https://me:pw@one.example/simple"}),
        ("extra-index-url", "\nhttps://a.example\n/b", {"UV_INDEX": "https://a.example /b"}),
        ("trusted-host", "a.example\nb.example:8080", {"UV_INSECURE_HOST": "a.example b.example:8080"}),
        ("client-cert", "/a/client.pem", {"SSL_CLIENT_CERT": "/a/client.pem"}),
        ("proxy", "me:pw@proxy.example:3128", dict.fromkeys(pip_config.PROXIES, "http://me:pw@proxy.example:3128")),
        ("proxy", "https://proxy.example", dict.fromkeys(pip_config.PROXIES, "https://proxy.example")),
        ("timeout", "15", {"UV_HTTP_TIMEOUT": "15"}),
        ("timeout", "0.5", {"UV_HTTP_TIMEOUT": "1"}),
        ("retries", "0", {"UV_HTTP_RETRIES": "0"}),
        ("cache-dir", "/big/pip", {"UV_CACHE_DIR": "/big/pip/uv"}),
        ("no-cache-dir", "1", {"UV_NO_CACHE": "1"}),
        ("keyring-provider", "subprocess", {"UV_KEYRING_PROVIDER": "subprocess"}),
        ("keyring-provider", "auto", {"UV_KEYRING_PROVIDER": "disabled"}),
        ("quiet", "1", {}),
        ("user", "no", {}),
    ],
)
def test_option_becomes_a_variable(name, value, variables):
    arguments, found = pip_config.for_uv({"cert": "/ca.crt", name: value})
    assert arguments == ["--index-strategy", "unsafe-best-match"]
    assert found == {"SSL_CERT_FILE": "/ca.crt", **variables}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("no-index", "true", ["--no-index"]),
        ("no-index", "false", []),
        ("only-binary", ":all:", ["--only-binary=:all:"]),
        ("only-binary", "one,two", ["--only-binary=one", "--only-binary=two"]),
    ],
)
def test_option_becomes_an_argument(name, value, expected):
    arguments, _ = pip_config.for_uv({name: value})
    assert arguments == ["--index-strategy", "unsafe-best-match", *expected]


def test_missing_find_links_are_dropped(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my wheels").mkdir()
    (tmp_path / "wheels").mkdir()
    links = [
        str(tmp_path / "wheels"),
        str(tmp_path / "missing"),
        f"file://{tmp_path}/my%20wheels",
        f"file://{tmp_path}/missing",
        "~/wheels",
        "https://links.example/page",
    ]
    _, variables = pip_config.for_uv({"find-links": "\n".join(links)})
    kept = [links[0], links[2], str(tmp_path / "wheels"), links[5]]
    assert variables["UV_FIND_LINKS"] == ",".join(kept)


def test_certificates_may_be_a_folder(tmp_path):
    assert pip_config.for_uv({"cert": str(tmp_path)})[1] == {"SSL_CERT_DIR": str(tmp_path)}


def test_certificates_default_to_those_of_requests(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/a/ca.crt")
    assert pip_config.for_uv({})[1] == {"SSL_CERT_FILE": "/a/ca.crt"}
    assert pip_config.for_uv({"cert": "/b/ca.crt"})[1] == {"SSL_CERT_FILE": "/b/ca.crt"}


@pytest.mark.parametrize(("certificates", "variables"), [(["ca.pem"], {"UV_SYSTEM_CERTS": "1"}), ([], {})])
def test_certificates_default_to_those_of_the_system(monkeypatch, tmp_path, certificates, variables):
    for name in certificates:
        (tmp_path / name).touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert pip_config.for_uv({})[1] == variables


@pytest.mark.parametrize(
    ("name", "value"), [("constraint", "/etc/pip/constraint.txt"), ("user", "yes"), ("timeout", "soon"), ("new", "1")]
)
def test_an_unsupported_option_is_named(name, value):
    with pytest.raises(pip_config.UnsupportedOptionError, match=f"^{name}$"):
        pip_config.for_uv({name: value})
