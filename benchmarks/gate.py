"""Comparison of engines by masks and times: `python -m benchmarks.gate OBJECTS`

For each set of weights, every object in the folder OBJECTS (see `benchmarks.objects`) is prompted with a click and with
a box on the raw graphs. Each engine's masks are compared with ONNX Runtime's in float32 and with the human masks. An
engine keeps the masks if the mean IoU with float32 is at least `MIN_IOU`, for single masks and for candidates, and no
mean IoU with human masks falls by more than `MAX_DROP`. Then the graphs are timed, the engines taking turns. The
service chooses an engine only if it keeps the masks and is faster.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.engines import ENGINES, ONNX_RUNTIME, OPENVINO_BF16, OPENVINO_F32, Array, Engine, load
from benchmarks.figures import interleaved, ratio_table, table
from benchmarks.objects import LabelledObject, Mask, iou, read_objects, read_picture
from benchmarks.raw import RawModel
from benchmarks.service import BUILTIN, OFFICIAL, prepare
from orchestrator import images, pipeline
from orchestrator.masks import upsample
from utils.triton.machine import has_bf16

MIN_IOU = 0.98
MAX_DROP = 0.003
LOW_IOU = 0.9
Pair = tuple[str, str]
"""Engines of encoder and decoder."""
BASELINE: Pair = (ONNX_RUNTIME, ONNX_RUNTIME)
OTHERS: tuple[Pair, ...] = (
    (OPENVINO_F32, OPENVINO_F32),
    (OPENVINO_BF16, OPENVINO_F32),
    (OPENVINO_BF16, OPENVINO_BF16),
)
COLUMNS = ("single", "candidates", "1 click", "best of 3", "box", "masks kept")
LEGEND = (
    f"single and candidates: IoU with float32's masks, mean / worst / share below {LOW_IOU}; "
    "1 click, best of 3 and box: mean IoU with human masks, and its change"
)
ROUNDS = 20
LARGE_BATCH = 8
"""Prompts in one run of the decoder: the largest batch of the service on a CPU."""


class Networks:
    """Encoder and decoder of a model repository on several engines."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._engine = cache(self._load)
        self._embedding = cache(self._encode)

    def masks(self, labelled: LabelledObject, engines: Pair) -> list[Mask]:
        """Return eight (H, W) bool masks: the single one and three candidates for the click, then for the box."""
        encoder, decoder = engines
        embedding, frame_hw, size_hw = self._embedding(labelled.file, encoder)
        x0, y0, x1, y1 = labelled.box
        found: list[Mask] = []
        for points, labels in (([labelled.point], [1]), ([(x0, y0), (x1, y1)], [2, 3])):
            in_image = np.array([points], np.float32), np.array([labels], np.int32)
            coords, frame_labels = pipeline.points_to_frame(*in_image, size_hw, frame_hw)
            feed: dict[str, Array] = {
                "image_embeddings": embedding,
                "point_coords": coords,
                "point_labels": frame_labels,
                "mask_input": np.zeros((1, 1, 256, 256), np.float32),
                "has_mask_input": np.zeros(1, np.float32),
            }
            (logits,) = self._engine("decoder", decoder).run(["low_res_masks"], feed)
            found += [upsample(low_res, frame_hw, size_hw) > 0 for low_res in logits[0]]
        return found

    def _load(self, part: str, engine: str) -> Engine:
        return load(self._repository / f"mobile_sam_{part}" / "1" / "model.onnx", engine)

    def _encode(self, file: Path, engine: str) -> tuple[Array, tuple[int, int], tuple[int, int]]:
        """Return the embedding, and the height and width of the frame and of the picture."""
        picture = read_picture(file)
        frame = images.to_frame(picture)
        inputs: dict[str, Array] = {"images": frame.pixels[None], "sizes_hw": np.array([frame.size_hw], np.int32)}
        embedding = self._engine("encoder", engine).run(["image_embeddings"], inputs)[0].copy()
        return embedding, frame.size_hw, (picture.shape[0], picture.shape[1])


def agreement(made: Sequence[Mask], expected: Sequence[Mask]) -> list[float]:
    """Return the IoU of each mask with the expected one; two empty masks agree."""
    return [iou(a, b) if (a | b).any() else 1.0 for a, b in zip(made, expected, strict=True)]


def human_iou(masks: Sequence[Mask], wanted: Mask) -> tuple[float, float, float]:
    """Return the IoU with a human mask of one click, the best of its three candidates, and the box.

    Args:
        masks: eight masks, as returned by `Networks.masks`.
        wanted: (H, W) bool.
    """
    return iou(masks[0], wanted), max(iou(mask, wanted) for mask in masks[1:4]), iou(masks[4], wanted)


def keeps_masks(agreed: Array, human: Array, human_f32: Array) -> bool:
    """Return whether an engine keeps the masks.

    Args:
        agreed: (objects, 8) IoU with float32's masks.
        human: (objects, 3) IoU with human masks, as returned by `human_iou`.
        human_f32: (objects, 3), the same for float32.
    """
    single = agreed[:, [0, 4]].mean()
    candidates = np.delete(agreed, [0, 4], axis=1).mean()
    return bool(min(single, candidates) >= MIN_IOU and (human_f32.mean(0) - human.mean(0)).max() <= MAX_DROP)


def compare(weights: str, repository: Path, objects: Sequence[LabelledObject]) -> list[Sequence[object]]:
    """Return one row of the mask table per pair of engines."""
    networks = Networks(repository)
    pairs = [BASELINE, *(pair for pair in OTHERS if OPENVINO_BF16 not in pair or has_bf16())]
    agreed: dict[Pair, list[list[float]]] = {pair: [] for pair in pairs}
    human: dict[Pair, list[tuple[float, float, float]]] = {pair: [] for pair in pairs}
    for labelled in tqdm(objects, desc=f"{weights}, masks", unit="object"):
        expected = networks.masks(labelled, BASELINE)
        for pair in pairs:
            made = expected if pair == BASELINE else networks.masks(labelled, pair)
            agreed[pair].append(agreement(made, expected))
            human[pair].append(human_iou(made, labelled.mask))
    rows: list[Sequence[object]] = []
    baseline = np.array(human[BASELINE])
    for pair in pairs:
        rows.append((weights, *pair, *figures_of(np.array(agreed[pair]), np.array(human[pair]), baseline)))
    return rows


def figures_of(agreed: Array, human: Array, human_f32: Array) -> list[str]:
    """Return an engine's figures in the order of `COLUMNS`; the arguments are those of `keeps_masks`."""
    groups = agreed[:, [0, 4]], np.delete(agreed, [0, 4], axis=1)
    figures = [f"{group.mean():.4f} / {group.min():.2f} / {(group < LOW_IOU).mean():.1%}" for group in groups]
    changes = (human - human_f32).mean(0)
    people = [f"{mean:.4f} ({change:+.4f})" for mean, change in zip(human.mean(0), changes, strict=True)]
    return [*figures, *people, "yes" if keeps_masks(agreed, human, human_f32) else "no"]


def time_table(repository: Path, title: str) -> str:
    """Return the times of encoder and decoder on each engine, with ratios to OpenVINO in float32."""
    arms: dict[str, Callable[[], object]] = {}
    baselines = {}
    for engine in (engine for engine in ENGINES if engine != OPENVINO_BF16 or has_bf16()):
        model = RawModel(repository, engine, engine)
        work: dict[str, Callable[[], object]] = {
            "encoder": model.encode,
            "decoder, 1 prompt": model.decode,
            f"decoder, {LARGE_BATCH} prompts": partial(model.decode, count=LARGE_BATCH),
        }
        for name, run in work.items():
            arms[f"{name}: {engine}"] = run
            baselines[f"{name}: {engine}"] = f"{name}: {OPENVINO_F32}"
    return ratio_table(interleaved(arms, ROUNDS, title), baselines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="photographs with outlined objects")
    parser.add_argument("--weights", nargs="+", default=[OFFICIAL, BUILTIN], help="default: official and builtin")
    options = parser.parse_args()
    objects = read_objects(options.folder)
    rows, times = [], []
    for weights in options.weights:
        repository = prepare(weights)
        rows += compare(weights, repository, objects)
        times.append(f"{weights}\n\n{time_table(repository, f'{weights}, times')}")
    print(table(("weights", "encoder", "decoder", *COLUMNS), rows))
    print(f"{LEGEND}\n")
    print("\n\n".join(times))


if __name__ == "__main__":
    main()
