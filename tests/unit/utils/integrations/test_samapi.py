"""Requests as QuPath's extension SAM 0.9.1 sends them, and the answers it parses."""

import base64
from typing import Any

import numpy as np
import pytest

from tests.unit.utils.integrations.replay import HOLE, MASK, SQUARE, Replay, record
from utils.integrations.samapi import ADAPTER, SERVED_WEIGHTS

IMAGE = base64.b64encode(b"what the viewer shows").decode()
PROMPT: dict[str, Any] = {
    "type": "vit_t",
    "b64img": IMAGE,
    "point_coords": [[3, 4], [8, 9]],
    "point_labels": [0, 1],
    "multimask_output": False,
    "checkpoint_url": SERVED_WEIGHTS,
}
"""The extension's points, those of the background first; it leaves out what is null."""
GRID: dict[str, Any] = {
    "type": "vit_t",
    "b64img": IMAGE,
    "points_per_side": 4,
    "points_per_batch": 64,
    "stability_score_thresh": 0.95,
    "crop_overlap_ratio": 512 / 1500,
    "output_type": "Single mask",
    "include_image_edge": False,
    "checkpoint_url": SERVED_WEIGHTS,
}
"""Some of the extension's parameters."""


@pytest.fixture
def replay() -> Replay:
    return Replay(ADAPTER)


@pytest.mark.parametrize("path", ["/sam/", "/sam"])
def test_points_become_a_feature(replay, path):
    replay.masks = [MASK]
    (feature,) = replay.post(path, json=PROMPT).json()
    assert replay.prompts() == ([[[3, 4], [8, 9]]], [[0, 1]])
    assert [source.file for source in replay.sources] == [b"what the viewer shows"]
    assert feature == {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [[*SQUARE, SQUARE[0]], [*HOLE, HOLE[0]]]},
        "properties": {"object_idx": 0, "label": "object", "quality": 0.9, "sam_model": "official"},
    }


def test_rectangle_is_cut_to_the_image(replay):
    prompt = {name: PROMPT[name] for name in ("type", "b64img")}
    replay.post("/sam/", json={**prompt, "bbox": [-5, 3, 60, 31]})
    assert replay.prompts() == ([[[0, 3], [40, 30]]], [[2, 3]])


@pytest.mark.parametrize(("include_image_edge", "count"), [(True, 2), (False, 1)])
def test_automatic_masks_become_features(replay, include_image_edge, count):
    large, small = np.zeros((2, 30, 40), bool)
    large[9:, :25] = True  # within 20 pixels of all edges
    small[21:25, 22:30] = True
    replay.next_batches = [[record(large), record(small)]]
    body = {**GRID, "include_image_edge": include_image_edge}
    features = replay.post("/sam/automask/", json=body).json()
    assert len(features) == count
    assert sorted(features[-1]["geometry"]["coordinates"][0][:-1]) == [
        [22, 21],
        [22, 25],
        [30, 21],
        [30, 25],
    ]
    assert features[-1]["properties"]["quality"] == 0.9
    assert sum(len(batch.inputs["point_coords"]) for _, batch in replay.batches) == 16
    assert replay.batches[0][1].options["stability_score_thresh"] == 0.95


def test_dialog_finds_the_weights_of_this_service(replay):
    (weights,) = replay.get("/sam/weights/?type=vit_t").json()
    assert weights == {"type": "vit_t", "name": "MobileSAM", "url": SERVED_WEIGHTS}
    assert replay.get("/sam/weights/?type=vit_h").json() == []
    assert replay.get("/sam/version/").text.startswith("mobile-sam-triton ")
    assert replay.get("/sam/progress/").json() == {"message": None, "percent": -1}
    assert replay.get("/sam/weights/cancel/").status_code == 200


@pytest.mark.parametrize(
    ("path", "change", "sentence"),
    [
        ("/sam/", {"checkpoint_url": "https://example.org/sam.pt"}, "fetches no others"),
        ("/sam/", {"type": "vit_h"}, "type: expected vit_t"),
        ("/sam/", {"b64mask": "AAAA"}, "b64mask: expected none"),
        ("/sam/", {"point_coords": [], "point_labels": []}, "no prompt"),
        ("/sam/", {"point_labels": [0, 7]}, "point_labels[1]"),
        ("/sam/automask/", {"points_per_side": 100}, "points_per_side: expected"),
        ("/sam/automask/", {"checkpoint_url": "file:///x"}, "fetches no others"),
    ],
)
def test_errors_have_a_detail(replay, path, change, sentence):
    answer = replay.post(path, json={**(PROMPT if path == "/sam/" else GRID), **change})
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]
    assert replay.calls == []
