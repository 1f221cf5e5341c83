"""What a client is told before it sends anything."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from utils.errors import InferenceUnavailable
from utils.info import Info, describe, weights_of
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


def info_of(
    repository: Path | None, loaded: list[int] | Exception, told: dict[str, Any] | None = None
) -> dict[str, Any]:
    async def versions() -> list[int]:
        if isinstance(loaded, Exception):
            raise loaded
        return loaded

    return asyncio.run(Info(told or {"weights": "those at start"}, repository, versions).document())


def test_the_weights_are_those_of_the_newest_version_that_answers(repository):
    for version in (2, 10):
        folder = repository / "mobile_sam" / str(version)
        folder.mkdir()
        (folder / "weights.json").write_text(json.dumps({**RECORD, "name": f"number {version}"}))
    said = {2: "number 2", 1: "mine", 10: "number 10"}
    for newest, name in said.items():
        told = info_of(repository, [1, newest])
        assert told["model_versions"] == [1, newest]
        assert told["weights"]["name"] == name
    assert described(repository)["weights"]["name"] == "number 10"


def test_while_triton_is_away_no_version_answers_and_the_newest_will(repository):
    told = info_of(repository, InferenceUnavailable("starting"))
    assert told["model_versions"] == []
    assert told["weights"]["name"] == "mine"


def test_weights_whose_folder_has_gone_are_told_until_they_are_unloaded(repository):
    loaded = [1]

    async def versions() -> list[int]:
        return loaded

    info = Info({}, repository, versions)
    before = asyncio.run(info.document())
    (repository / "mobile_sam" / "1" / "weights.json").unlink()
    assert asyncio.run(info.document()) == before


def test_of_a_repository_elsewhere_the_versions_are_known():
    assert info_of(None, [3]) == {"weights": None, "model_versions": [3]}
