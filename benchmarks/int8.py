"""Comparison of the official encoder in int8 and bfloat16: `python -m benchmarks.int8 OBJECTS`

NNCF quantises the encoder (static, per-channel weights); each variant quantises other layers. It is calibrated on the
page's samples, crops of them and generated scenes, and measured on the photographs of OBJECTS as in `benchmarks.gate`.
The other layers and the decoder run in bfloat16. Needs NNCF and a CPU with int8 and bfloat16 instructions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino
from tqdm import tqdm

from benchmarks.engines import OPENVINO_BF16, Array, load
from benchmarks.figures import table
from benchmarks.gate import BASELINE, COLUMNS, LEGEND, Networks, agreement, figures_of, human_iou
from benchmarks.objects import read_objects
from benchmarks.photo import SAMPLE
from benchmarks.report import OFFICIAL
from benchmarks.repository import prepare
from benchmarks.timing import interleaved, ratio_table
from orchestrator import images
from training.scenes import make_scene
from training.textures import TextureBank

CROPS, SCENES = 7, 32
"""Calibration images: crops of each sample picture, and generated scenes."""
MIN_CROP_SHARE = 0.4
"""Minimum share of the picture's height and width in a crop."""
ROUNDS = 20
BF16 = (OPENVINO_BF16, OPENVINO_BF16)

Feed = dict[str, Array]


def frames() -> list[Feed]:
    """Return the encoder's inputs for calibration."""
    generator = np.random.default_rng(0)
    pictures = []
    for file in sorted(SAMPLE.parent.glob("*.jpg")):
        picture = images.decode(images.open_image(file.read_bytes(), 10**9))
        pictures.append(picture)
        for _ in range(CROPS):
            height, width = (int(side * generator.uniform(MIN_CROP_SHARE, 1)) for side in picture.shape[:2])
            y, x = (int(generator.integers(side)) for side in (picture.shape[0] - height, picture.shape[1] - width))
            pictures.append(np.ascontiguousarray(picture[y : y + height, x : x + width]))
    bank = TextureBank(1)
    pictures += [make_scene(generator, bank).image for _ in range(SCENES)]
    return [feed_of(picture) for picture in pictures]


def feed_of(picture: Array) -> Feed:
    """Return the encoder's inputs for a picture, (H, W, 3) uint8 RGB."""
    frame = images.to_frame(picture)
    return {"images": frame.pixels[None], "sizes_hw": np.array([frame.size_hw], np.int32)}


def variants(model: openvino.Model) -> dict[str, dict[str, Any]]:
    """Return NNCF's options for each variant."""
    products = [node for node in model.get_ops() if node.get_type_name() == "MatMul"]
    of_activations = [
        node.get_friendly_name()
        for node in products
        if not any(source.get_source_output().get_node().get_type_name() == "Constant" for source in node.inputs())
    ]
    convolutions = ["Convolution", "GroupConvolution"]
    transformer = {"model_type": nncf.ModelType.TRANSFORMER}
    return {
        "linear layers": {
            **transformer,
            "ignored_scope": nncf.IgnoredScope(names=of_activations, types=convolutions),
        },
        "convolutions": {"ignored_scope": nncf.IgnoredScope(types=["MatMul", "GroupConvolution"])},
        "NNCF's choice for transformers": transformer,
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="photographs with outlined objects")
    objects = read_objects(parser.parse_args().folder)
    repository = prepare(OFFICIAL)
    encoder, decoder = (repository / f"mobile_sam_{part}" / "1" / "model.onnx" for part in ("encoder", "decoder"))
    feeds = frames()
    graphs = {"none": encoder}
    for number, (name, options) in enumerate(variants(openvino.Core().read_model(encoder)).items()):
        quantised = nncf.quantize(
            openvino.Core().read_model(encoder), nncf.Dataset(feeds), subset_size=len(feeds), **options
        )
        graphs[name] = repository.parent / f"encoder-int8-{number}.xml"
        openvino.save_model(quantised, graphs[name], compress_to_fp16=False)
    baseline = Networks(encoder, decoder)
    expected = [baseline.masks(labelled, BASELINE) for labelled in tqdm(objects, desc="float32", unit="object")]
    human_f32 = np.array([human_iou(masks, labelled.mask) for masks, labelled in zip(expected, objects, strict=True)])
    rows: list[Sequence[object]] = []
    arms: dict[str, Callable[[], object]] = {}
    for name, graph in graphs.items():
        networks = Networks(graph, decoder)
        made = [networks.masks(labelled, BF16) for labelled in tqdm(objects, desc=name, unit="object")]
        agreed = np.array([agreement(some, others) for some, others in zip(made, expected, strict=True)])
        human = np.array([human_iou(masks, labelled.mask) for masks, labelled in zip(made, objects, strict=True)])
        rows.append((name, *figures_of(agreed, human, human_f32)))
        arms[name] = partial(load(graph, OPENVINO_BF16).run, ["image_embeddings"], feeds[0])
    print(table(("in int8", *COLUMNS), rows))
    print(f"{LEGEND}\n")
    print(ratio_table(interleaved(arms, ROUNDS, "times"), dict.fromkeys(arms, "none")))


if __name__ == "__main__":
    main()
