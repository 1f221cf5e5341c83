"""Masks over HTTP are the same with every engine; images are encoded in batches, and clicks do
not wait for them.
"""

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from benchmarks.objects import iou
from harness import Server, launch_server
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.parity.cases import read_cases
from utils.triton.machine import has_bf16

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
BF16 = ["openvino-bf16"] if has_bf16() else []
RUNS = 'nv_inference_exec_count{model="mobile_sam_encoder",version="1"}'


@pytest.fixture(scope="module")
def servers(official_server: Server, official_repository: Path) -> Iterator[dict[str, Server]]:
    """Start a service for each engine but the default one, which is running; they share a folder
    of embeddings.
    """
    engines = [*BF16, "openvino", "onnxruntime"]
    with ExitStack() as stack:
        launched = {}
        for engine in engines[1:]:
            launched[engine] = launch_server(
                official_server.log.with_name(f"{engine}.log"),
                MOBILE_SAM_MODEL_REPOSITORY=str(official_repository),
                MOBILE_SAM_ENGINE=engine,
                MOBILE_SAM_ORCHESTRATORS="4"
                if engine == "onnxruntime"
                else "",  # so that images can arrive together
            )
            stack.callback(launched[engine].request_stop)
        yield {engines[0]: official_server} | {
            name: server.wait_until_ready() for name, server in launched.items()
        }


@pytest.mark.parametrize(
    ("engine", "names", "source", "min_iou"),
    [
        pytest.param(
            "onnxruntime", ("onnxruntime f32", "onnxruntime f32"), "found", 0.999, id="onnxruntime"
        ),
        pytest.param(
            "openvino-bf16",
            ("openvino bf16", "openvino f32"),
            "encoded",
            0.98,
            marks=pytest.mark.skipif(not BF16, reason="this processor has no bfloat16"),
            id="openvino-bf16",
        ),
    ],
)
def test_masks_match_openvino_in_float32(servers, engine, names, source, min_iou):
    same: list[float] = []
    ids: dict[str, str] = {}
    for case in (case for case in read_cases() if not case.refines):
        if case.image not in ids:
            photo = as_base64(case.file.read_bytes() + b"engines")  # other tests have sent the file
            ids[case.image] = (
                servers["openvino"].post("/embed", input_image=photo).json()["image_id"]
            )
            # Engines of one precision share embeddings; others encode the image again.
            before = servers[engine].embeddings()
            assert servers[engine].post("/embed", image_id=ids[case.image]).status_code == 200
            assert servers[engine].embeddings() == {**before, source: before[source] + 1}
        prompt = {"pos_coords": case.points_xy, "labels": case.labels, "box": case.box_xyxy}
        fields = {
            "image_id": ids[case.image],
            "multimask_output": case.multimask,
            **prompt,
            **NPY_ONLY,
        }
        actual, expected = (
            segmentation(servers[each].post(**fields)) for each in (engine, "openvino")
        )
        assert actual.result["engine"] == dict(zip(("encoder", "decoder"), names, strict=True))
        same.append(iou(actual.masks, expected.masks))
    assert np.mean(same) >= min_iou


def test_all_masks_match_openvino_in_float32_and_name_their_decoder(servers):
    photo = next(case.file for case in read_cases()).read_bytes()
    found = {}
    for engine, server in servers.items():
        answer = server.post("/everything", input_image=as_base64(photo), points_per_side=8).json()
        backend = "onnxruntime" if engine == "onnxruntime" else "openvino"
        precision = "bf16" if engine == "openvino-bf16" else "f32"
        assert answer["engine"] == dict.fromkeys(("encoder", "decoder"), f"{backend} {precision}")
        found[engine] = [record["segmentation"] for record in answer["masks"]]
    expected = found.pop("openvino")
    for masks in found.values():
        overlaps = coco.iou(expected, masks, [0] * len(masks))
        # A mask near a threshold is in one of the answers only.
        assert min(overlaps.max(axis=0).mean(), overlaps.max(axis=1).mean()) > 0.9


def test_onnxruntime_encodes_concurrent_images_in_batches(servers):
    server = servers["onnxruntime"]
    photos = [scene(1900 + number) for number in range(6)]

    def click(photo: bytes) -> np.ndarray:
        return segmentation(
            server.post(input_image=as_base64(photo), pos_coords=[[240, 160]], **NPY_ONLY)
        ).masks

    alone = [click(reencoded(photo)) for photo in photos[:2]]
    encoded, runs = server.embeddings()["encoded"], server.count(RUNS)
    with ThreadPoolExecutor(len(photos)) as pool:
        together = list(pool.map(click, photos))
    assert server.embeddings()["encoded"] == encoded + len(photos)
    # The watchdog may encode an image meanwhile.
    assert server.count(RUNS) < runs + len(photos)
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
