"""The lock of ONNX Runtime Web, which set-up fetches for the page."""

import json
import re

from harness import ROOT

LOCK = (ROOT / "tools" / "onnxruntime_web.lock").read_text()


def test_lock_has_the_hash_of_the_package_and_no_address():
    (version,) = set(re.findall(r'"npm:onnxruntime-web@([\d.]+)/', (ROOT / "tools" / "onnxruntime_web.js").read_text()))
    packages = json.loads(LOCK)["npm"]
    assert f"onnxruntime-web@{version}" in packages
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "://" not in LOCK


def test_program_that_fetches_it_is_that_of_the_checks():
    alone = (ROOT / "requirements" / "page.txt").read_text()
    assert alone.startswith("deno==")
    assert alone in (ROOT / "requirements" / "dev.txt").read_text()
