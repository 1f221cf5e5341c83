"""A small SAM 2 with random weights, in two versions: squashed images, embeddings of three
tensors.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest
import requests

from benchmarks.fleet import SMALL
from harness import Server, serving
from harness.repository import make_repository
from orchestrator import images
from sam_onnx import Preparer
from tests.e2e.answers import segmentation
from tests.e2e.pictures import as_base64, scene
from tests.family.cases_sam2 import MODELS, TENSORS, sam2_state

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK: dict[str, Any] = {"pos_coords": [[100, 80]], "mask_format": "npy", "segmented_image": "none"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sam2")
    state = sam2_state(**MODELS["small"])
    np.savez(folder / "first.npz", **state)
    np.savez(folder / "second.npz", **{**state, "no_mem_embed": 1 - state["no_mem_embed"]})
    repository = make_repository(folder / "model_repository", str(folder / "first.npz"))
    Preparer(repository, print, version=2).prepare(str(folder / "second.npz"))
    return repository


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"MOBILE_SAM_MODEL_REPOSITORY": str(repository), **SMALL}
    with serving(tmp_path_factory.mktemp("server") / "log", **settings) as running:
        yield running


def mask_of_the_graphs(repository: Path, version: int, file: bytes) -> Any:
    """Return the mask of `CLICK` by the exported graphs."""
    encoder, decoder = (
        onnxruntime.InferenceSession(
            repository / f"mobile_sam_{part}" / str(version) / "model.onnx"
        )
        for part in ("encoder", "decoder")
    )
    pixels, _ = images.decode(images.open_image(file, 10**8))
    height, width = pixels.shape[:2]
    frame = images.Preprocessing(resize="squash").frame(pixels)
    feed = {"images": frame.pixels[None], "sizes_hw": np.array([frame.size_hw], np.int32)}
    embedding = dict(zip(TENSORS, encoder.run(list(TENSORS), feed), strict=True))
    points = np.array([[[100 * 1024 / width, 80 * 1024 / height], [0, 0]]], np.float32)
    prompt = {"point_coords": points, "point_labels": np.array([[1, -1]], np.float32)}
    no_mask = {
        "mask_input": np.zeros((1, 1, 256, 256), np.float32),
        "has_mask_input": np.zeros(1, np.float32),
    }
    (logits,) = decoder.run(["single_masks"], {**embedding, **prompt, **no_mask})
    return cv2.resize(logits[0, 0], (width, height), interpolation=cv2.INTER_LINEAR) > 0


def test_both_versions_answer_as_their_graphs_from_the_encoder_and_from_the_cache(
    server, repository
):
    file, masks = scene(7), {}
    for version in (1, 2):
        fields = {**CLICK, "input_image": as_base64(file), "model_version": version}
        first, again = segmentation(server.post(**fields)), segmentation(server.post(**fields))
        assert first.encode_s is not None
        assert again.encode_s is None
        assert np.array_equal(first.masks, again.masks)
        wanted = mask_of_the_graphs(repository, version, file)
        assert wanted.any()
        assert (first.masks.astype(bool) == wanted).mean() > 0.999
        masks[version] = first.masks
    assert not np.array_equal(masks[1], masks[2])


def test_earlier_masks_boxes_and_everything_are_answered(server):
    image = as_base64(scene(8))
    first = segmentation(server.post(**CLICK, input_image=image, low_res_mask=True)).result
    refined = server.post(
        **CLICK,
        image_id=first["image_id"],
        mask_input=first["masks"][0]["low_res_mask"],
        box=[40, 30, 160, 140],
    )
    assert segmentation(refined).masks.shape == (first["height"], first["width"])
    found = server.post(
        "/everything", image_id=first["image_id"], points_per_side=2, pred_iou_thresh=0
    )
    assert found.status_code == 200


def test_info_describes_both_versions(server):
    info = requests.get(f"{server.url}/info", timeout=60).json()
    names = {each["version"]: each["weights"]["name"] for each in info["loaded"]}
    assert names == {1: "first.npz", 2: "second.npz"}
    descriptor = info["loaded"][0]["descriptor"]
    assert (descriptor["resize"], sorted(descriptor["embedding"])) == ("squash", list(TENSORS))
    assert info["encode_s"] > 0
