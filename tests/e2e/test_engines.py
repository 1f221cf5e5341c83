"""Every engine gives the same masks, and answers name it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.answers import found, problem
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, serve_in_vain, start_server
from utils.machine import has_bf16

pytestmark = pytest.mark.e2e


def masks(server: Server, shared: Path) -> tuple[list[np.ndarray], dict[str, str]]:
    """All masks of the reference cases, and the engine that made them."""
    made = []
    for case in json.loads((shared / "reference" / "cases.json").read_text()):
        if "mask_input" in case:
            continue
        answer = server.post(
            input_image=as_base64((shared / "images" / case["image"]).read_bytes()),
            pos_coords=case["points"],
            labels=case["labels"],
            box=case["box"],
            multimask_output=case["multimask"],
            mask_format="npy",
            segmented_image="none",
        )
        made += list(found(answer).masks)
    return made, found(answer).result["engine"]


def ious(some: list[np.ndarray], others: list[np.ndarray]) -> list[float]:
    return [float((a & b).sum() / max(1, (a | b).sum())) for a, b in zip(some, others, strict=True)]


@pytest.mark.parametrize(
    ("engine", "encoder", "decoder", "least"),
    [
        pytest.param("onnxruntime", "onnxruntime f32", "onnxruntime f32", 0.999, id="onnxruntime"),
        pytest.param(
            "openvino-bf16",
            "openvino bf16",
            "openvino f32",
            0.98,
            marks=pytest.mark.skipif(not has_bf16(), reason="this processor has no bfloat16"),
            id="openvino-bf16",
        ),
    ],
)
def test_masks_are_those_of_openvino_in_float32(
    *, server, shared, repository, tmp_path, engine, encoder, decoder, least
):
    expected, _ = masks(server, shared)
    photo = as_base64((shared / "images" / "dog.jpg").read_bytes())
    known = server.post("/embed", input_image=photo).json()["image_id"]
    other = start_server(
        tmp_path / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_ENGINE=engine,
        MOBILE_SAM_EMBEDDING_CACHE_DIR=str(server.log.parent / "embeddings"),
    )
    try:
        # Embeddings that the two keep in one folder are shared where they are of one precision.
        click = other.post(image_id=known, pos_coords=[[500, 300]], mask_format="rle", segmented_image="none")
        if encoder.endswith("f32"):
            assert click.status_code == 200
        else:
            assert problem(click)["type"].endswith("image-not-cached")
        made, named = masks(other, shared)
    finally:
        other.stop()
    assert named == {"encoder": encoder, "decoder": decoder}
    assert np.mean(ious(made, expected)) >= least


def test_images_that_come_together_are_encoded_together(server, repository, tmp_path):
    several = start_server(
        tmp_path / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_ENGINE="openvino",
        MOBILE_SAM_ORCHESTRATORS="6",
    )
    names = ("nv_inference_count", "nv_inference_exec_count")
    photos = [as_base64(scene(900 + number)) for number in range(12)]
    click: dict[str, Any] = {"pos_coords": [[240, 160]], "mask_format": "npy", "segmented_image": "none"}
    try:
        before = [several.metric(name, "mobile_sam_encoder") for name in names]
        with ThreadPoolExecutor(len(photos)) as pool:
            together = list(pool.map(lambda photo: several.post(input_image=photo, **click), photos))
        after = [several.metric(name, "mobile_sam_encoder") for name in names]
    finally:
        several.stop()
    images, runs = (now - was for now, was in zip(after, before, strict=True))
    assert images == len(photos)
    assert runs < images
    alone = [server.post(input_image=photo, **click) for photo in photos[:3]]
    made = ([found(answer).masks for answer in answers] for answers in (together[:3], alone))
    assert min(ious(*made)) >= 0.999


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_an_engine_that_cannot_run_here_ends_the_start_with_one_line():
    ended = serve_in_vain(MOBILE_SAM_ENGINE="tensorrt")
    assert ended.returncode != 0
    assert "error: the engine tensorrt needs an NVIDIA GPU and an ONNX Runtime for it" in ended.stderr
    assert "Traceback" not in ended.stderr
