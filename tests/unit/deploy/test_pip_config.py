"""Export of pip's configuration to image builds."""

from __future__ import annotations

from deploy.image import pip_config


def test_indexes_are_exported_but_not_local_folders():
    configured = {
        "extra-index-url": "file:///somewhere https://one.example/simple",
        "find-links": "/wheels",
        "index-url": "https://two.example/simple",
        "cert": "/etc/one.crt",
        "quiet": "1",
    }
    assert pip_config.portable(configured) == {
        "extra-index-url": "https://one.example/simple",
        "index-url": "https://two.example/simple",
    }


def test_exported_files_hold_settings_and_certificates(monkeypatch, tmp_path):
    (tmp_path / "own.crt").write_text("certificates")
    configured = {"cert": str(tmp_path / "own.crt"), "proxy": "proxy.example:3128", "extra-index-url": "/wheels"}
    monkeypatch.setattr("deploy.image.pip_config.pip_config.read", lambda _: configured)
    pip_config.main(tmp_path)
    assert (tmp_path / "ca.crt").read_text() == "certificates"
    assert (tmp_path / "pip.conf").read_text() == "[global]\ncert = /run/secrets/ca.crt\nproxy = proxy.example:3128\n"
