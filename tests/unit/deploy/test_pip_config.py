"""What a build of an image is told of how pip reaches its packages."""

from __future__ import annotations

from deploy.image.pip_config import settings

LISTING = """global.extra-index-url='file:///somewhere https://one.example/simple'
global.cert='/etc/one.crt'
global.find-links='/wheels'
:env:.index-url='https://two.example/simple'
:env:.disable-pip-version-check='1'
"""


def test_indexes_and_certificates_are_taken_and_folders_of_this_machine_are_not():
    assert settings(LISTING) == {
        "extra-index-url": "https://one.example/simple",
        "index-url": "https://two.example/simple",
        "cert": "/etc/one.crt",
    }


def test_the_environment_wins_over_a_file():
    assert settings("global.proxy='a'\n:env:.proxy='b'\n") == {"proxy": "b"}
