"""pip's configuration for other programs: its reading, its translation for uv, and its export
for image builds.
"""

import os
import sys

import pytest

from sam_onnx import pip_options
from tools import pip_config

DEFAULTS = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}


def test_configuration_of_the_real_pip_is_read(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text(
        "[global]\nquiet = 2\nindex-url = https://one.example/it's\nfind-links =\n    /a\n   "
        " /b\nproxy = p.example\n[install]\nindex-url ="
        " https://two.example/it's\n[download]\nindex-url = https://three.example/\n"
    )
    monkeypatch.setenv("PIP_TRUSTED_HOST", "one.example two.example")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "180")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/ca.crt")
    expected = {
        "index-url": "https://two.example/it's",
        "find-links": "/a /b",
        "proxy": "p.example",
        "trusted-host": "one.example two.example",
        "timeout": "180",
    }
    pip = [sys.executable, "-m", "pip"]
    assert pip_options.read(pip).items() >= expected.items()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # then pip reads no file
    variables = {"trusted-host": "one.example two.example", "timeout": "180", "cert": "/ca.crt"}
    assert pip_options.read(pip).items() >= variables.items()


@pytest.mark.parametrize(
    ("name", "value", "variables"),
    [
        (
            "index-url",
            "https://me:pw@one.example/simple",
            {"UV_DEFAULT_INDEX": "https://me:pw@one.example/simple"},
        ),
        ("extra-index-url", "https://a.example /b", {"UV_INDEX": "https://a.example /b"}),
        ("proxy", "me:pw@proxy.example:3128", {"ALL_PROXY": "me:pw@proxy.example:3128"}),
        (
            "find-links",
            "/missing / https://links.example/page",
            {"UV_FIND_LINKS": "/,https://links.example/page"},
        ),
        ("timeout", "180", {"UV_HTTP_TIMEOUT": "180"}),
        ("no-index", "yes", {"UV_OFFLINE": "1"}),
        ("no-index", "false", {}),
        ("cert", "/ca.crt", {"SSL_CERT_FILE": "/ca.crt"}),
        ("cert", "/", {"SSL_CERT_DIR": "/"}),
        ("client-cert", "/me.pem", {"SSL_CLIENT_CERT": "/me.pem"}),
        ("cache-dir", "/big/pip", {"UV_CACHE_DIR": "/big/pip/uv"}),
        ("quiet", "1", {}),
    ],
)
def test_option_becomes_a_variable_of_uv(name, value, variables):
    assert pip_config.for_uv({name: value}) == {**DEFAULTS, **variables}


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
    assert (
        (tmp_path / "pip.conf").read_text()
        == "[global]\ncert = /run/secrets/ca.crt\nextra-index-url = https://one.example/simple\nproxy = proxy.example:3128\n"
    )


def test_command_writes_both_files_to_an_existing_folder(monkeypatch, tmp_path):
    (tmp_path / "own.crt").write_text("certificates")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "own.crt"))
    pip_config.main([str(tmp_path)])
    assert (tmp_path / "ca.crt").read_text() == "certificates"
    assert (tmp_path / "pip.conf").read_text().startswith("[global]\ncert = /run/secrets/ca.crt\n")


def test_errors_of_the_command_are_one_line(monkeypatch, tmp_path):
    with pytest.raises(
        SystemExit, match=rf"^error: {tmp_path}/absent: no such folder; make it first"
    ):
        pip_config.main([str(tmp_path / "absent")])
    with pytest.raises(SystemExit, match="2"):
        pip_config.main([])
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "absent.crt"))
    with pytest.raises(
        SystemExit, match=rf"^error: {tmp_path}/absent\.crt: No such file or directory$"
    ):
        pip_config.main([str(tmp_path)])
    (tmp_path / "broken.conf").write_text("no section")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "broken.conf"))
    with pytest.raises(SystemExit, match=r"^error: [^\n]* -m pip config list: [^\n]+$"):
        pip_config.main([str(tmp_path)])
