"""What a build of an image is told of how pip reaches its packages."""

from __future__ import annotations

from deploy.image import pip_config


def test_image_gets_indexes_but_no_folders_of_this_machine():
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


def test_image_files_hold_the_settings_and_the_certificates(monkeypatch, tmp_path):
    (tmp_path / "own.crt").write_text("certificates")
    configured = {"cert": str(tmp_path / "own.crt"), "proxy": "proxy.example:3128", "extra-index-url": "/wheels"}
    monkeypatch.setattr("deploy.image.pip_config.pip_config.read", lambda _: configured)
    pip_config.main(tmp_path)
    assert (tmp_path / "ca.crt").read_text() == "certificates"
    assert (tmp_path / "pip.conf").read_text() == "[global]\ncert = /run/secrets/ca.crt\nproxy = proxy.example:3128\n"
