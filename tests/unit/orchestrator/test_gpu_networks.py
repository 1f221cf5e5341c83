"""The networks that GPUs run, on a CPU: the same embeddings, masks and records as by the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from orchestrator.arrays import Array
from orchestrator.cache import CachedImage
from orchestrator.embeddings import EncodedImage
from orchestrator.everything import record
from orchestrator.images import RGB, Frame, Preprocessing, decode, open_image
from orchestrator.networks import encoder_inputs
from orchestrator.pipeline import Pipeline, Prompts
from orchestrator.stages import Stages
from sam_onnx.descriptor import LONGEST_SIDE, SQUASH
from sam_onnx.pixels import with_pixels

PHOTOGRAPHS = (
    "quality/103070.jpg",
    "quality/106024.jpg",
    "quality/108070.jpg",
    "images/dog.jpg",
    "images/car_2241x1500.jpg",
    "images/neon_portrait.png",
)
THRESHOLDS = {
    "pred_iou_thresh": 0.5,
    "stability_score_thresh": 0.7,
    "stability_score_offset": 1.0,
    "min_mask_region_area": 0,
}
STAGES = Stages(lambda *_: None)
MAX_DIFFERENT_PIXELS = 4
"""Pixels of a mask whose logits are so near to the threshold that the order of additions counts."""


def runner(network: onnx.ModelProto | Path) -> Callable[[dict[str, Array], list[str]], Any]:
    """Return a function that runs a network, as `RunDecoder`."""
    source = str(network) if isinstance(network, Path) else network.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return lambda inputs, outputs: session.run(outputs, inputs)


@dataclass
class Side:
    """Encoder and decoder of a CPU or of a GPU."""

    encoder: Callable[[dict[str, Array], list[str]], Any]
    pipeline: Pipeline
    preprocessing: Preprocessing

    def frame(self, pixels: RGB) -> Frame:
        return self.preprocessing.frame(pixels)

    def embedding(self, pixels: RGB) -> Array:
        frame = self.frame(pixels)
        inputs = encoder_inputs(frame.pixels, frame.size_hw, frame.box_xyxy)
        return np.asarray(self.encoder(inputs, ["image_embeddings"])[0])


def sides(networks: Sequence[onnx.ModelProto], resize: str) -> tuple[Side, Side]:
    """Return encoder and decoder for a CPU, and for a GPU."""
    made = []
    for on_gpu in (False, True):
        encoder, decoder = (
            with_pixels(network, resize) if on_gpu else network for network in networks
        )
        pipeline = Pipeline(
            run_decoder=runner(decoder),
            embeddings=None,  # type: ignore[arg-type]
            stages=STAGES,
            identity={},
            thresholds={},
            max_answer_bytes=0,
            decoder_batch=8,
            makes_masks=on_gpu,
            mask_memory_bytes=2**28,
        )
        made.append(Side(runner(encoder), pipeline, Preprocessing(1024, resize, on_gpu)))
    return made[0], made[1]


def networks_of(repository: Path) -> list[onnx.ModelProto]:
    return [
        onnx.load(repository / f"mobile_sam_{name}" / "1" / "model.onnx")
        for name in ("encoder", "decoder")
    ]


@pytest.fixture(scope="module", params=[LONGEST_SIDE, SQUASH])
def builtin(request, builtin_repository) -> tuple[Side, Side]:
    return sides(networks_of(builtin_repository), request.param)


@pytest.fixture(scope="module")
def squashing(builtin_repository) -> tuple[Side, Side]:
    return sides(networks_of(builtin_repository), SQUASH)


@pytest.fixture(scope="module")
def official(official_repository) -> tuple[Side, Side]:
    return sides(networks_of(official_repository), LONGEST_SIDE)


def drawing() -> RGB:
    """Return an image with a disc and a bar."""
    y, x = np.mgrid[0:203, 0:301]
    pixels = np.full((203, 301, 3), (30, 60, 90), np.uint8)
    pixels[np.hypot(y - 100, x - 90) < 60] = (200, 180, 40)
    pixels[40:160, 200:260] = (10, 200, 120)
    return pixels


def encoded(side: Side, pixels: RGB, embedding: Array) -> EncodedImage:
    height, width, _ = pixels.shape
    entry = CachedImage({"image_embeddings": embedding}, (height, width), b"")
    return EncodedImage("id", "id", entry, 10**8, STAGES, preprocessing=side.preprocessing)


def prompts_for(size_hw: tuple[int, int]) -> Prompts:
    """Return a click, two clicks, and a box."""
    height, width = size_hw
    near, far = (width * 0.3, height * 0.5), (width * 0.7, height * 0.6)
    points = [[near, (0, 0)], [near, far], [(width * 0.2, height * 0.2), far]]
    return Prompts(np.array(points, np.float32), np.array([[1, -2], [1, 0], [2, 3]], np.int32))


def check_same_masks(cpu: Side, gpu: Side, pixels: RGB) -> None:
    """Check that masks and records of both sides are the same."""
    size_hw = pixels.shape[0], pixels.shape[1]
    embedding = cpu.embedding(pixels)
    images = [encoded(side, pixels, embedding) for side in (cpu, gpu)]
    prompts = prompts_for(size_hw)
    for candidates in (False, True):
        pairs = zip(
            *(
                side.pipeline.masks(
                    image, prompts, candidates=candidates, threshold=0.0, low_res=True
                )
                for side, image in zip((cpu, gpu), images, strict=True)
            ),
            strict=True,
        )
        for ours, theirs in pairs:
            assert (ours.object, ours.is_best) == (theirs.object, theirs.is_best)
            assert ours.score == pytest.approx(theirs.score, abs=1e-4)
            np.testing.assert_allclose(ours.logits, theirs.logits, atol=1e-3)
            assert np.count_nonzero(ours.mask.inside != theirs.mask.inside) <= MAX_DIFFERENT_PIXELS

    points_xy = np.stack(np.meshgrid(*(np.arange(0.1, 1, 0.2),) * 2), axis=-1).reshape(-1, 2)
    points_xy = (points_xy * size_hw[::-1]).astype(np.float32)
    found = [
        [
            record(
                mask,
                points_xy[mask.point],
                crop=(0, 0, size_hw[1], size_hw[0]),
                size_hw=size_hw,
                options=THRESHOLDS,
            )
            for mask in side.pipeline.stable_masks(image, points_xy, THRESHOLDS)
        ]
        for side, image in zip((cpu, gpu), images, strict=True)
    ]
    assert found[0]
    different = 0
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert theirs is not None
        for score in ("predicted_iou", "stability_score"):
            # A pixel of a small mask is more than the scores' last digit.
            pixel = MAX_DIFFERENT_PIXELS / max(1, theirs["area"])
            assert ours.pop(score) == pytest.approx(theirs.pop(score), abs=1e-4 + pixel)
        assert abs(ours["area"] - theirs["area"]) <= MAX_DIFFERENT_PIXELS
        different += ours != theirs
    assert different <= 1 + len(found[0]) // 20


def test_encoder_that_scales_makes_the_same_embedding(builtin):
    cpu, gpu = builtin
    assert cpu.frame(drawing()).pixels.shape == (1024, 1024, 3)
    assert gpu.frame(drawing()).pixels.shape == (203, 301, 3)
    np.testing.assert_allclose(cpu.embedding(drawing()), gpu.embedding(drawing()), atol=0.02)


def test_very_large_image_is_scaled_before_the_encoder(builtin, monkeypatch):
    cpu, gpu = builtin
    monkeypatch.setattr("orchestrator.images.MAX_PIXELS_OF_ENCODER", 1000)
    frame = gpu.frame(drawing())
    assert frame.pixels.shape == (1024, 1024, 3)
    assert frame.box_xyxy == (0, 0, frame.size_hw[1], frame.size_hw[0])
    np.testing.assert_allclose(cpu.embedding(drawing()), gpu.embedding(drawing()), atol=0.02)


def test_masks_and_records_are_the_same(builtin):
    cpu, gpu = builtin
    check_same_masks(cpu, gpu, drawing())


@pytest.mark.parametrize("bytes_per_run", [1, 3 * 16 * 203 * 301, 2**30])
def test_runs_have_as_many_prompts_as_the_memory_holds(builtin, bytes_per_run):
    _, gpu = builtin
    image = encoded(gpu, drawing(), gpu.embedding(drawing()))
    sizes = []

    def count(inputs: dict[str, Array], outputs: list[str]) -> Any:
        sizes.append(len(inputs["point_labels"]))
        return run(inputs, outputs)

    run = gpu.pipeline.run_decoder
    pipeline = replace(
        gpu.pipeline, run_decoder=count, decoder_batch=2, mask_memory_bytes=bytes_per_run
    )
    prompts = prompts_for((203, 301))
    masks = pipeline.masks(image, prompts, candidates=True, threshold=0.0, low_res=False)
    found = [(mask.object, mask.logits) for mask in masks]
    assert found == [(index, None) for index in (0, 0, 0, 1, 1, 1, 2, 2, 2)]
    assert sizes == ([2, 1] if bytes_per_run == 2**30 else [1, 1, 1])


@pytest.mark.slow
@pytest.mark.parametrize("name", PHOTOGRAPHS)
@pytest.mark.parametrize("member", ["official", "squashing"])
def test_masks_and_records_of_photographs_are_the_same(request, shared, name, member):
    cpu, gpu = request.getfixturevalue(member)
    pixels, _ = decode(open_image((shared / name).read_bytes(), 10**8))
    np.testing.assert_allclose(cpu.embedding(pixels), gpu.embedding(pixels), atol=0.05)
    check_same_masks(cpu, gpu, pixels)
