"""Every engine gives the same masks, and responses name the engine."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.e2e.answers import segmentation
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, launch_server, serve_expecting_failure
from utils.triton.machine import has_bf16

pytestmark = pytest.mark.e2e
ENGINES = ("onnxruntime", *(["openvino-bf16"] if has_bf16() else []))


def masks(server: Server, shared: Path) -> tuple[list[np.ndarray], dict[str, str]]:
    """Return all masks of the reference cases and the engine's name."""
    found = []
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
        found += list(segmentation(answer).masks)
    return found, segmentation(answer).result["engine"]


def ious(some: list[np.ndarray], others: list[np.ndarray]) -> list[float]:
    return [float((a & b).sum() / max(1, (a | b).sum())) for a, b in zip(some, others, strict=True)]


@pytest.fixture(scope="module")
def others(server: Server, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Start a service for each other engine; all use the embedding folder of `server`."""
    with ExitStack() as stack:
        launched = {}
        for engine in ENGINES:
            launched[engine] = launch_server(
                tmp_path_factory.mktemp(engine) / "log",
                MOBILE_SAM_MODEL_REPOSITORY=str(repository),
                MOBILE_SAM_ENGINE=engine,
                MOBILE_SAM_EMBEDDING_CACHE_DIR=str(server.log.parent / "embeddings"),
                MOBILE_SAM_ORCHESTRATORS="4",  # so that images can arrive together
            )
            stack.callback(launched[engine].request_stop)
        yield {engine: other.wait_until_ready() for engine, other in launched.items()}


@pytest.mark.parametrize(
    ("engine", "encoder", "decoder", "min_iou"),
    [
        pytest.param("onnxruntime", "onnxruntime f32", "onnxruntime f32", 0.999, id="onnxruntime"),
        pytest.param(
            "openvino-bf16",
            "openvino bf16",
            "openvino bf16",
            0.98,
            marks=pytest.mark.skipif("openvino-bf16" not in ENGINES, reason="this processor has no bfloat16"),
            id="openvino-bf16",
        ),
    ],
)
def test_masks_match_openvino_in_float32(*, server, shared, others, engine, encoder, decoder, min_iou):
    expected, _ = masks(server, shared)
    photo = as_base64((shared / "images" / "dog.jpg").read_bytes())
    known = server.post("/embed", input_image=photo).json()["image_id"]
    # Engines of one precision share embeddings; others encode the image again.
    before = others[engine].embeddings()
    click = others[engine].post(image_id=known, pos_coords=[[500, 300]], mask_format="rle", segmented_image="none")
    assert click.status_code == 200
    source = "found" if encoder.endswith("f32") else "encoded"
    assert others[engine].embeddings() == {**before, source: before[source] + 1}
    actual, engine_names = masks(others[engine], shared)
    assert engine_names == {"encoder": encoder, "decoder": decoder}
    assert np.mean(ious(actual, expected)) >= min_iou


def test_onnxruntime_encodes_concurrent_images_in_batches(others):
    server = others["onnxruntime"]
    names = ("nv_inference_count", "nv_inference_exec_count")
    photos = [scene(1900 + number) for number in range(12)]

    def click(photo: bytes) -> np.ndarray:
        answer = server.post(
            input_image=as_base64(photo), pos_coords=[[240, 160]], mask_format="npy", segmented_image="none"
        )
        return segmentation(answer).masks

    alone = [click(reencoded(photo)) for photo in photos[:3]]
    before = [server.metric(name, "mobile_sam_encoder") for name in names]
    with ThreadPoolExecutor(len(photos)) as pool:
        together = list(pool.map(click, photos))
    after = [server.metric(name, "mobile_sam_encoder") for name in names]
    images, runs = (now - was for now, was in zip(after, before, strict=True))
    assert images == len(photos)
    assert runs < images
    assert min(ious(together[:3], alone)) >= 0.999


def reencoded(photo: bytes) -> bytes:
    """Return a file with the same pixels but a different image id."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(photo)) as picture:
        picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_unavailable_engine_ends_the_start_with_one_line():
    result = serve_expecting_failure(MOBILE_SAM_ENGINE="tensorrt")
    assert result.returncode != 0
    assert "error: the engine tensorrt needs an NVIDIA GPU and an ONNX Runtime with GPU support" in result.stderr
    assert "Traceback" not in result.stderr
