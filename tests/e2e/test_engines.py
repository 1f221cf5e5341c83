"""Masks over HTTP match the official predictor's with the same random weights, and are the same with every engine."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.e2e.answers import segmentation
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, make_repository, start_server
from utils.triton.machine import has_bf16

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
BF16 = ["openvino-bf16"] if has_bf16() else []
NPY_ONLY = {"mask_format": "npy", "segmented_image": "none"}


@pytest.fixture(scope="module")
def servers(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Start a service with the reference weights for each engine; they share a folder of embeddings."""
    folder = tmp_path_factory.mktemp("engines")
    repository = make_repository(folder / "model_repository", str(shared / "reference" / "mobile_sam_seed7.pt"))
    with ExitStack() as stack:
        running = {}
        for engine in ("openvino", "onnxruntime", *BF16):
            running[engine] = start_server(
                folder / f"{engine}.log",
                MOBILE_SAM_MODEL_REPOSITORY=str(repository),
                MOBILE_SAM_ENGINE=engine,
                MOBILE_SAM_ORCHESTRATORS="4",  # so that images can arrive together
            )
            stack.callback(running[engine].request_stop)
        yield running


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((shared / "reference" / "cases.json").read_text())
    assert sum("mask_input" in case for case in found) >= 4
    return found


def ask(server: Server, shared: Path, case: dict[str, Any], **fields: Any) -> Any:
    """Segment a reference case; refinements get the predictor's own earlier mask."""
    if "mask_input" in case:
        with np.load(shared / "reference" / "expected.npz") as expected:
            fields.setdefault("mask_input", low_res_mask(expected[case["mask_input"]][case["mask_index"]]))
    answer = server.post(
        input_image=as_base64((shared / "images" / case["image"]).read_bytes()),
        pos_coords=case["points"],
        labels=case["labels"],
        box=case["box"],
        **{"multimask_output": case["multimask"], **NPY_ONLY, **fields},
    )
    return segmentation(answer)


def low_res_mask(logits: Any) -> str:
    file = io.BytesIO()
    np.save(file, np.asarray(logits, np.float32))
    return base64.b64encode(file.getvalue()).decode()


def test_areas_and_scores_match_the_official_predictor(servers, shared, cases):
    expected = np.load(shared / "reference" / "expected.npz")
    for case in cases:
        key = f"{case['image']}/{case['case']}"
        answer = ask(servers["openvino"], shared, case)
        masks = answer.masks.reshape(-1, *answer.masks.shape[-2:])
        areas = np.array(expected[f"area/{key}"]).reshape(-1)
        assert masks.shape == (len(areas), answer.result["height"], answer.result["width"])
        assert np.abs(masks.mean(axis=(1, 2)) - areas).max() <= 0.003, key
        assert [mask["area"] for mask in answer.result["masks"]] == masks.sum(axis=(1, 2)).tolist()
        scores = [mask["score"] for mask in answer.result["masks"]]
        assert scores == pytest.approx(np.array(expected[f"iou/{key}"]).reshape(-1).tolist(), abs=1e-3), key


def test_low_res_masks_and_their_refinements_match_the_official_predictor(servers, shared, cases):
    expected, server = np.load(shared / "reference" / "expected.npz"), servers["openvino"]
    for case in (case for case in cases if "mask_input" in case):
        first = ask(server, shared, case, mask_input=None, multimask_output=True, low_res_mask=True)
        ours = [base64.b64decode(mask["low_res_mask"]) for mask in first.result["masks"]]
        low_res = np.stack([np.load(io.BytesIO(file)) for file in ours])
        assert low_res.shape == (3, 256, 256)
        assert np.allclose(low_res, expected[case["mask_input"]], rtol=1e-3, atol=1e-3)  # stored as float16

        earlier = first.result["masks"][case["mask_index"]]["low_res_mask"]
        refined = ask(server, shared, case, mask_input=earlier)
        key = f"{case['image']}/{case['case']}"
        assert refined.result["masks"][0]["score"] == pytest.approx(float(expected[f"iou/{key}"].item()), abs=1e-3)
        assert abs(refined.masks.mean() - float(expected[f"area/{key}"].item())) <= 0.003


@pytest.mark.parametrize(
    ("engine", "name", "source", "min_iou"),
    [
        pytest.param("onnxruntime", "onnxruntime f32", "found", 0.999, id="onnxruntime"),
        pytest.param(
            "openvino-bf16",
            "openvino bf16",
            "encoded",
            0.98,
            marks=pytest.mark.skipif(not BF16, reason="this processor has no bfloat16"),
            id="openvino-bf16",
        ),
    ],
)
def test_masks_match_openvino_in_float32(*, servers, shared, cases, engine, name, source, min_iou):
    photo = as_base64((shared / "images" / "dog.jpg").read_bytes())
    known = servers["openvino"].post("/embed", input_image=photo).json()["image_id"]
    # Engines of one precision share embeddings; others encode the image again.
    before = servers[engine].embeddings()
    assert servers[engine].post(image_id=known, pos_coords=[[500, 300]], **NPY_ONLY).status_code == 200
    assert servers[engine].embeddings() == {**before, source: before[source] + 1}
    found = []
    for case in (case for case in cases if "mask_input" not in case):
        actual, expected = (ask(servers[each], shared, case) for each in (engine, "openvino"))
        assert actual.result["engine"] == {"encoder": name, "decoder": name}
        found.append(iou(actual.masks, expected.masks))
    assert np.mean(found) >= min_iou


def iou(some: np.ndarray, others: np.ndarray) -> float:
    return float((some & others).sum() / max(1, (some | others).sum()))


def test_onnxruntime_encodes_concurrent_images_in_batches(servers):
    server = servers["onnxruntime"]
    names = ("nv_inference_count", "nv_inference_exec_count")
    photos = [scene(1900 + number) for number in range(8)]

    def click(photo: bytes) -> np.ndarray:
        return segmentation(server.post(input_image=as_base64(photo), pos_coords=[[240, 160]], **NPY_ONLY)).masks

    alone = [click(reencoded(photo)) for photo in photos[:2]]
    before = [server.metric(name, "mobile_sam_encoder") for name in names]
    with ThreadPoolExecutor(len(photos)) as pool:
        together = list(pool.map(click, photos))
    after = [server.metric(name, "mobile_sam_encoder") for name in names]
    images, runs = (now - was for now, was in zip(after, before, strict=True))
    assert images == len(photos)
    assert runs < images
    assert min(map(iou, together[:2], alone)) >= 0.999


def reencoded(photo: bytes) -> bytes:
    """Return a file with the same pixels but a different image id."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(photo)) as picture:
        picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


def test_click_on_a_known_image_does_not_wait_for_new_images(servers):
    server = servers["onnxruntime"]
    image_id = server.post("/embed", input_image=as_base64(scene(13))).json()["image_id"]
    new = [as_base64(scene(100 + number)) for number in range(8)]
    with ThreadPoolExecutor(len(new)) as pool:
        encodes = [pool.submit(server.post, "/embed", input_image=image) for image in new]
        assert segmentation(server.post(image_id=image_id, pos_coords=[[240, 160]], **NPY_ONLY))
        assert [encode for encode in encodes if not encode.done()]  # the click was answered first
        assert all(encode.result().status_code == 200 for encode in encodes)
