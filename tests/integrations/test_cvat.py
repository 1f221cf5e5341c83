"""CVAT's command line runs the client's functions against the service: masks arrive unchanged."""

import io
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness import Server
from mobile_sam_client import Client
from tests.e2e.pictures import scene
from tests.integrations.conftest import KEY
from tests.integrations.cvat_server import FUNCTION_ID, TASK_ID, TOKEN, CvatServer, cvat_server
from tools.environment import ROOT

pytestmark = pytest.mark.e2e

FRAMES = [scene(seed, (240, 160)) for seed in (950, 951, 952)]
"""Three frames in chunks of two."""
LABELS = [{"id": 70, "name": "cat", "type": "any"}, {"id": 71, "name": "balloon", "type": "any"}]
GRID = {"points_per_side": 5, "pred_iou_thresh": 0.0, "stability_score_thresh": 0.0}
"""Parameters with which each frame has several masks."""
MODULE = ["--function-module", "mobile_sam_client.cvat"]
GRID_OPTIONS = ("points_per_side=int:5", "pred_iou_thresh=float:0", "stability_score_thresh=float:0")
DETECTOR = [*MODULE, *(word for option in ("label=str:balloon", *GRID_OPTIONS) for word in ("-p", option))]
INTERACTOR = [*MODULE, "-p", "kind=str:interactor"]


@pytest.fixture(scope="session")
def cvat_cli(tool_environment: Callable[[str], Path]) -> Path:
    return tool_environment("cvat") / "cvat-cli"


@pytest.fixture
def cvat() -> Iterator[CvatServer]:
    with cvat_server(FRAMES, LABELS) as running:
        yield running


@pytest.fixture
def run(cvat_cli, cvat, server: Server, tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of `cvat-cli` on the stand-in, with the client and the service's address in the environment."""

    def run_command(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CVAT", "XDG_"))}
        done = subprocess.run(
            [cvat_cli, "--server-host", cvat.url, *arguments],
            env={
                **environment,
                "HOME": str(tmp_path),
                "PYTHONPATH": str(ROOT / "client"),
                "CVAT_ACCESS_TOKEN": TOKEN,
                "MOBILE_SAM_URL": server.url,
                "MOBILE_SAM_API_KEY": KEY,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == status, done.stderr
        return done

    return run_command


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, api_key=KEY) as opened:
        yield opened


def decoded(points: Sequence[float], size_hw: tuple[int, int] = (160, 240)) -> np.ndarray:
    """Return a mask, (H, W) bool, of CVAT's run lengths in a box whose corners are inclusive."""
    *lengths, left, top, right, bottom = (int(number) for number in points)
    mask = np.zeros(size_hw, bool)
    inside = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    mask[top : bottom + 1, left : right + 1] = inside.reshape(bottom + 1 - top, right + 1 - left)
    return mask


def test_task_gets_the_masks_of_everything(run, cvat, client):
    run("task", "auto-annotate", str(TASK_ID), *DETECTOR)
    ((method, target, body),) = cvat.received
    assert (method, target) == ("PATCH", f"/api/tasks/{TASK_ID}/annotations/?action=create")
    assert body["tags"] == []
    expected = [(number, record) for number, file in enumerate(FRAMES) for record in client.everything(file, **GRID)]
    assert len(expected) > len(FRAMES)
    for shape, (frame, record) in zip(body["shapes"], expected, strict=True):
        assert (shape["frame"], shape["label_id"], shape["type"], shape["source"]) == (frame, 71, "mask", "auto")
        assert (decoded(shape["points"]) == record.mask).all()
        assert shape["score"] == pytest.approx(min(record.score, 1))


def test_task_gets_polygons_above_the_confidence(run, cvat, client):
    records = [(number, record) for number, file in enumerate(FRAMES) for record in client.everything(file, **GRID)]
    threshold = float(np.median([record.score for _, record in records]))
    more = ["--conv-mask-to-poly", "--conf-threshold", str(threshold), "--clear-existing"]
    run("task", "auto-annotate", str(TASK_ID), *DETECTOR, *more)
    ((method, _, body),) = cvat.received
    assert method == "PUT"
    kept = [(frame, record) for frame, record in records if record.score >= threshold]
    assert 0 < len(kept) < len(records)
    expected = [(frame, outline.ravel().tolist()) for frame, one in kept for outline, *_ in one.polygons()]
    assert [(shape["frame"], shape["points"]) for shape in body["shapes"]] == expected
    assert {shape["type"] for shape in body["shapes"]} == {"polygon"}


def test_wrong_parameter_is_reported_before_anything_is_sent(run, cvat):
    failed = run("task", "auto-annotate", str(TASK_ID), *MODULE, "-p", "pointsperside=int:3", status=1)
    assert "unexpected keyword argument 'pointsperside'" in failed.stderr
    assert cvat.received == []


PROMPTS: dict[str, dict[str, Any]] = {
    "points": {"pos_points": [[120.5, 80], [60, 40]], "neg_points": [[5, 5]]},
    "point and box": {"pos_points": [[120, 80]], "obj_bbox": [[40, 30], [150, 120]]},
    "negative point alone": {"neg_points": [[5, 5]]},
}


def test_agent_answers_clicks_with_the_masks_of_the_service(run, cvat, client, server):
    created = run("function", "create-native", "MobileSAM", *INTERACTOR)
    assert created.stdout.strip() == str(FUNCTION_ID)
    assert cvat.function["kind"] == "interactor"
    assert cvat.function["startswith_box_optional"] is True
    assert (cvat.function["min_pos_points"], cvat.function["min_neg_points"]) == (0, 0)
    cvat.received.clear()
    clicked = scene(953, (240, 160))
    cvat.frames = [*FRAMES[:2], clicked]
    none: dict[str, Any] = {"pos_points": [], "neg_points": [], "obj_bbox": []}
    params = {"type": "interact", "task": TASK_ID, "frame": 2}
    cvat.requests += [
        {"ar_id": f"r{number}", "ar_params": {**params, **none, **prompt}}
        for number, prompt in enumerate(PROMPTS.values())
    ]
    before = server.embeddings()["encoded"]
    run("function", "run-agent", str(FUNCTION_ID), *INTERACTOR, "--burst")
    assert server.embeddings()["encoded"] == before + 1

    for number, (answer, prompt) in enumerate(zip(cvat.received, PROMPTS.values(), strict=True)):
        method, path, body = answer
        queue = f"/api/functions/queues/function:{FUNCTION_ID}/requests"
        assert (method, path) == ("POST", f"{queue}/r{number}/complete"), body
        if list(prompt) == ["neg_points"]:
            assert body["shapes"] == []
            continue
        corners = prompt.get("obj_bbox")
        expected = client.segment(
            np.asarray(Image.open(io.BytesIO(clicked))),
            pos_coords=prompt.get("pos_points"),
            neg_coords=prompt.get("neg_points"),
            box=None if corners is None else [*corners[0], *corners[1]],
        )
        (shape,) = body["shapes"]
        assert shape["type"] == "mask"
        assert expected.area > 0
        assert (decoded(shape["points"]) == expected.mask).all()
        (confidence,) = shape["attributes"]
        assert confidence["spec_id"] == 0
        assert float(confidence["value"]) == pytest.approx(min(expected.score, 1))
