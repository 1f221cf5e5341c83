"""What a client is told before it sends anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from utils.info import describe, weights_of
from utils.machine import this_machine
from utils.plan import make_plan
from utils.settings import Settings

RECORD = {"name": "mine", "sha256": "00", "trained": True, "note": "Mine.", "architecture": "mobile_sam"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "mobile_sam" / "1"
    folder.mkdir(parents=True)
    (folder / "weights.json").write_text(json.dumps(RECORD))
    parameter = 'parameters { key: "max_image_pixels" value: { string_value: "1234" } }'
    (tmp_path / "mobile_sam" / "config.pbtxt").write_text(parameter)
    return tmp_path


def described(repository: Path, **settings):
    plan = make_plan(this_machine(), "mobile_sam", "onnxruntime")
    return describe(repository, plan, Settings(**settings), key_needed=True)


def test_weights_are_told_without_what_is_ours_alone(repository):
    assert weights_of(repository) == {"name": "mine", "sha256": "00", "trained": True, "note": "Mine."}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "mine"}', "null"])
def test_weights_that_are_not_described_are_none(repository, text):
    (repository / "mobile_sam" / "1" / "weights.json").write_text(text)
    assert described(repository)["weights"] is None


def test_the_limit_of_pixels_is_the_orchestrators_own_unless_set(repository):
    assert described(repository)["limits"]["max_image_pixels"] == 1234
    assert described(repository, max_image_pixels=99)["limits"]["max_image_pixels"] == 99


def test_engine_and_key(repository):
    told = described(repository)
    assert told["engine"]["encoder"].startswith("onnxruntime")
    assert told["key_needed"] is True


def test_of_a_repository_elsewhere_weights_and_engine_are_not_known():
    told = describe(None, make_plan(this_machine(), "mobile_sam", "onnxruntime"), Settings(), key_needed=False)
    assert told["weights"] is told["engine"] is None
    assert told["limits"]["max_image_pixels"] == 25_000_000
