"""Comparison of engines by masks and times: `python -m benchmarks.gate OBJECTS`

For each set of weights, every object in the folder OBJECTS (see `benchmarks.objects`) is prompted
on the raw graphs with a box, and with `CLICKS` clicks, each refining the previous mask, unless the
weights accept only boxes. Engines get the same clicks, which correct ONNX Runtime's masks in
float32 (see `benchmarks.clicks`), and refine their own masks; `keeps_masks` compares these with
ONNX Runtime's, and `keeps_first_candidates` those of a decoder in bfloat16. Then the graphs are
timed, the engines taking turns; without OBJECTS nothing else is done. The last line is for
`sam_onnx.descriptor`: the engines that keep the masks, the fastest first. Masks of untrained
weights say nothing, so that engines in bfloat16 are left out.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.clicks import Click, next_click
from benchmarks.engines import (
    CUDA,
    CUDA_F16,
    ONNX_RUNTIME,
    ONNX_RUNTIME_F16,
    OPENVINO_BF16,
    OPENVINO_F32,
    Array,
    available,
    load,
)
from benchmarks.objects import LabelledObject, Mask, iou, read_objects, read_picture
from benchmarks.raw import RawModel, descriptor_of, record_of
from benchmarks.service import BUILTIN, OFFICIAL
from benchmarks.stats import interleaved, percentile, ratios, table
from harness.repository import prepare
from orchestrator import images
from orchestrator.masks import upsample
from orchestrator.networks import decoder_inputs, encoder_inputs
from orchestrator.tensors import LOW_RES_MASKS

CLICKS = 5
MIN_IOU = 0.98
LOW_IOU, MAX_LOW_SHARE = 0.9, 0.05
MAX_DROP = 0.003
Pair = tuple[str, str]
"""Engines of encoder and decoder."""
BASELINE: Pair = (ONNX_RUNTIME, ONNX_RUNTIME)
SERVICE_ENGINES: dict[str, Pair] = {
    "onnxruntime": BASELINE,
    "openvino": (OPENVINO_F32, OPENVINO_F32),
    "openvino-bf16": (OPENVINO_BF16, OPENVINO_F32),
}
ON_GPU: Pair = (CUDA, CUDA)
HALF: tuple[Pair, ...] = (
    (ONNX_RUNTIME_F16, ONNX_RUNTIME),
    (ONNX_RUNTIME_F16, ONNX_RUNTIME_F16),
    (CUDA_F16, CUDA),
    (CUDA_F16, CUDA_F16),
)
"""float16, for GPUs: no default until it is measured on one."""
PAIRS: tuple[Pair, ...] = (
    *SERVICE_ENGINES.values(),
    ON_GPU,
    (OPENVINO_BF16, OPENVINO_BF16),
    *HALF,
)
HUMAN, BEST = "human", "best of 3"
COLUMNS = (
    "figure",
    *(f"click {number}" for number in range(1, CLICKS + 1)),
    "all clicks",
    "box",
    "masks kept",
)
LEGEND = (
    f"single, candidates: mean IoU with float32's masks; below {LOW_IOU}: share of single masks;"
    f" {HUMAN}: mean IoU of single masks with human masks, or its change; {BEST}: the same for the"
    " best candidate"
)
ROUNDS = 20
ENCODER, ONE_PROMPT = "encoder", "decoder, 1 prompt"
LARGE_BATCH = 8
"""Prompts in one run of the decoder: the largest batch of the service on a CPU."""

Masks = list[Mask]
"""The single mask and the three candidates of a prompt, each (H, W) bool."""


class Networks:
    """Encoder and decoder of a model repository on several engines."""

    def __init__(self, repository: Path) -> None:
        descriptor = descriptor_of(repository)
        self._scaling = images.Preprocessing(descriptor.side, descriptor.resize)
        self._tensors = list(descriptor.embedding)
        self._clicks = CLICKS if "points" in descriptor.prompts else 0
        self._graph = cache(partial(load, repository))
        self._embedding = cache(self._encode)

    def answer(
        self, labelled: LabelledObject, engines: Pair, clicks: Sequence[Click] = ()
    ) -> tuple[list[Masks], list[Click]]:
        """Return the masks after each of `CLICKS` clicks, if the weights accept any, then the
        box's, and the clicks.

        Args:
            labelled: object with its human mask.
            engines: engines of encoder and decoder.
            clicks: clicks to repeat; without them, each is made after the mask of the previous one.
        """
        masks_of_clicks: list[Masks] = []
        clicked: list[Click] = []
        earlier = None
        for number in range(self._clicks):
            if clicks:
                clicked.append(clicks[number])
            elif not clicked:
                clicked.append(Click(labelled.point, 1))
            else:
                clicked.append(
                    next_click(masks_of_clicks[-1][0], labelled.mask, clicked) or clicked[-1]
                )
            points = [click.point_xy for click in clicked]
            labels = [click.label for click in clicked]
            masks, earlier = self._decode(labelled.file, engines, points, labels, earlier)
            masks_of_clicks.append(masks)
        x0, y0, x1, y1 = labelled.box
        masks, _ = self._decode(labelled.file, engines, [(x0, y0), (x1, y1)], [2, 3])
        return [*masks_of_clicks, masks], clicked

    def _decode(
        self,
        file: Path,
        engines: Pair,
        points_xy: Sequence[tuple[float, float]],
        labels: Sequence[int],
        earlier: Array | None = None,
    ) -> tuple[Masks, Array]:
        """Return the masks of a prompt, and the logits of the single one, (1, 1, 256, 256)."""
        encoder, decoder = engines
        embedding, size_hw = self._embedding(file, encoder)
        feed = decoder_inputs(
            embedding,
            np.array([points_xy], np.float32),
            np.array([labels], np.int32),
            size_hw=size_hw,
            frame_hw=self._scaling.size_in_frame(size_hw),
            masks=None if earlier is None else (earlier, np.ones(1, np.float32)),
        )
        (logits,) = self._graph("decoder", decoder)([LOW_RES_MASKS.name], feed)
        valid_hw = self._scaling.valid_hw(size_hw)
        masks = [upsample(low_res, valid_hw, size_hw) > 0 for low_res in logits[0]]
        return masks, logits[:, :1].copy()

    def _encode(self, file: Path, engine: str) -> tuple[dict[str, Array], tuple[int, int]]:
        """Return the embedding, and the height and width of the picture."""
        picture = read_picture(file)
        frame = self._scaling.frame(picture)
        inputs = encoder_inputs(frame.pixels, frame.size_hw)
        tensors = self._graph("encoder", engine)(self._tensors, inputs)
        embedding = {
            name: tensor.copy() for name, tensor in zip(self._tensors, tensors, strict=True)
        }
        return embedding, (picture.shape[0], picture.shape[1])


def agreement(made: Sequence[Masks], expected: Sequence[Masks]) -> list[list[float]]:
    """Return the IoU of each mask of each prompt with the expected one; two empty masks agree."""
    return [
        [iou(a, b) if (a | b).any() else 1.0 for a, b in zip(*masks, strict=True)]
        for masks in zip(made, expected, strict=True)
    ]


def human_iou(answers: Sequence[Masks], wanted: Mask) -> list[tuple[float, float]]:
    """Return the IoU with a human mask of each prompt's single mask and of its best candidate."""
    ious = [[iou(mask, wanted) for mask in masks] for masks in answers]
    return [(single, max(candidates)) for single, *candidates in ious]


def keeps_masks(agreed: Array, human: Array, human_f32: Array) -> bool:
    """Return whether an engine keeps the masks.

    For each prompt, the mean IoU with float32 is at least `MIN_IOU`, for single masks and for
    candidates, and at most `MAX_LOW_SHARE` of the single masks are below `LOW_IOU`. No mean IoU
    with human masks falls by more than `MAX_DROP`, neither for single masks nor for the first
    prompt's best candidate.

    Args:
        agreed: (objects, prompts, 4) IoU with float32's masks; the prompts are the clicks and the
            box.
        human: (objects, prompts, 2) IoU with human masks, as returned by `human_iou`.
        human_f32: (objects, prompts, 2), the same for float32.
    """
    single, candidates = agreed[..., 0], agreed[..., 1:]
    near = min(single.mean(0).min(), candidates.mean((0, 2)).min()) >= MIN_IOU
    few_low = (single < LOW_IOU).mean(0).max() <= MAX_LOW_SHARE
    drops = (human_f32 - human).mean(0)
    return bool(near and few_low and max(drops[:, 0].max(), drops[0, 1]) <= MAX_DROP)


def keeps_first_candidates(agreed: Array) -> bool:
    """Return whether the candidates of first clicks are kept, as `keeps_masks` does; `agreed` as
    there.
    """
    return bool(agreed[:, 0, 1:].mean() >= MIN_IOU)


def compare(
    weights: str, repository: Path, objects: Sequence[LabelledObject], pairs: Sequence[Pair] = PAIRS
) -> tuple[list[list[str]], list[Pair]]:
    """Return the rows of the mask table, and the engines that keep the masks, of those that this
    machine can run.
    """
    networks = Networks(repository)
    pairs = [pair for pair in pairs if set(pair) <= set(available())]
    keeping = [BASELINE]
    measured: dict[Pair, list[tuple[list[list[float]], list[tuple[float, float]]]]] = {
        pair: [] for pair in pairs
    }
    for labelled in tqdm(objects, desc=f"{weights}, masks", unit="object"):
        expected, clicks = networks.answer(labelled, BASELINE)
        for pair in pairs:
            masks = expected if pair == BASELINE else networks.answer(labelled, pair, clicks)[0]
            measured[pair].append((agreement(masks, expected), human_iou(masks, labelled.mask)))
    arrays = {
        pair: [np.array(each) for each in zip(*images, strict=True)]
        for pair, images in measured.items()
    }
    human_f32, in_bf16 = arrays[BASELINE][1], arrays.get((OPENVINO_BF16, OPENVINO_BF16))
    rows = [
        [weights, *BASELINE, HUMAN, *means_by_prompt(human_f32[..., 0], ".4f"), ""],
        [weights, *BASELINE, BEST, *means_by_prompt(human_f32[..., 1], ".4f"), ""],
    ]
    for pair in pairs[1:]:
        agreed, human = arrays[pair]
        keeps = keeps_masks(agreed, human, human_f32)
        # All masks of an image are decoded in bfloat16.
        if pair == SERVICE_ENGINES["openvino-bf16"] and in_bf16:
            keeps = keeps and keeps_first_candidates(in_bf16[0])
        keeping += [pair] * keeps
        figures = (
            ("single", agreed[..., 0], ".4f"),
            ("candidates", agreed[..., 1:].mean(-1), ".4f"),
            (f"below {LOW_IOU}", agreed[..., 0] < LOW_IOU, ".1%"),
            (HUMAN, human[..., 0] - human_f32[..., 0], "+.4f"),
            (BEST, human[..., 1] - human_f32[..., 1], "+.4f"),
        )
        answer = "yes" if keeps else "no"
        rows += [
            [weights, *pair, name, *means_by_prompt(values, form), answer]
            for name, values, form in figures
        ]
    return rows, keeping


def means_by_prompt(values: Array, form: str) -> list[str]:
    """Return the means over objects for each click, over all clicks, and for the box; `values`:
    (objects, prompts).

    Without clicks their texts are empty.
    """
    *clicks, box = values.mean(0)
    means = [*clicks, np.mean(clicks), box] if clicks else [box]
    return [""] * (CLICKS + 2 - len(means)) + [f"{mean:{form}}" for mean in means]


def time_graphs(repository: Path, title: str) -> tuple[str, dict[str, list[float]]]:
    """Return a table of the times of encoder and decoder on each engine, with ratios to OpenVINO in
    float32.

    Returns:
        The table, and the seconds of each round by its first column, such as "encoder: openvino
        f32".
    """
    arms: dict[str, Callable[[], object]] = {}
    for engine in available():
        model = RawModel(repository, engine, engine)
        arms[f"{ENCODER}: {engine}"] = model.encode
        arms[f"{ONE_PROMPT}: {engine}"] = model.decode
        arms[f"decoder, {LARGE_BATCH} prompts: {engine}"] = partial(model.decode, count=LARGE_BATCH)
    times, rows = interleaved(arms, ROUNDS, title), []
    for name, values in times.items():
        base = f"{name.partition(':')[0]}: {OPENVINO_F32}"
        middle, slow = statistics.median(values), percentile(values, 95)
        rows.append((name, 1e3 * middle, 1e3 * slow, ratios(values, times[base]), base))
    return table(("", "p50 ms", "p95 ms", "ratio (quartiles)", "to"), rows), times


def fastest(keeping: Collection[Pair], times: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the service's engines among those that keep the masks, the fastest for a click on a
    new image first.
    """

    def click_s(engine: str) -> float:
        encoder, decoder = SERVICE_ENGINES[engine]
        return sum(
            statistics.median(times[name])
            for name in (f"{ENCODER}: {encoder}", f"{ONE_PROMPT}: {decoder}")
        )

    return sorted((name for name, pair in SERVICE_ENGINES.items() if pair in keeping), key=click_s)


def engines_line(weights: str, repository: Path, engines: Sequence[str]) -> str:
    """Return the `engines` that a descriptor should have; untrained weights say nothing of
    bfloat16.
    """
    record = record_of(repository)
    found = [
        engine
        for engine in engines
        if record["trained"] or OPENVINO_BF16 not in SERVICE_ENGINES[engine]
    ]
    kind, now = record["descriptor"]["architecture"], json.dumps(record["descriptor"]["engines"])
    return (
        f'{weights}, {kind} in sam_onnx/descriptor.py: "engines": {json.dumps(found)}; it has {now}'
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="photographs with outlined objects; without: only times",
    )
    parser.add_argument(
        "--weights", nargs="+", default=[OFFICIAL, BUILTIN], help="default: official and builtin"
    )
    options = parser.parse_args()
    objects = read_objects(options.folder) if options.folder else []
    rows, times, lines = list[list[str]](), [], []
    for weights in options.weights:
        repository = prepare(weights)
        found, keeping = compare(weights, repository, objects) if objects else ([], [])
        shown, taken = time_graphs(repository, f"{weights}, times")
        rows += found
        times.append(f"{weights}\n\n{shown}")
        lines += [engines_line(weights, repository, fastest(keeping, taken))] if objects else []
    if rows:
        print(f"{table(('weights', 'encoder', 'decoder', *COLUMNS), rows)}\n{LEGEND}\n")
    print("\n\n".join([*times, *lines]))


if __name__ == "__main__":
    main()
