"""Times of the networks with the work on pixels, which GPUs run, without the service."""

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.engines import Array, Graph, load
from benchmarks.photo import SIZE
from benchmarks.raw import descriptor_of
from benchmarks.stats import interleaved, percentile, table
from orchestrator import images, tensors
from orchestrator.networks import (
    CANDIDATE_OUTPUTS,
    SINGLE_OUTPUT,
    MaskRule,
    decoder_inputs,
    encoder_inputs,
)
from orchestrator.regions import full_image
from utils.triton.plan import DECODER_BATCH_GPU
from utils.triton.versions import GPU_NETWORK_FILE

SIZE_HW = SIZE[1], SIZE[0]
CLICK_OUTPUTS = [tensors.SCORES.name, tensors.MASK_BITS.name]
"""What the service asks for after a click."""


def time_graphs(repository: Path, engine: str, rounds: int) -> str:
    """Return a table of the times for an image of 1800 x 1200.

    Args:
        repository: the model repository.
        engine: one of `benchmarks.engines.ENGINES`.
        rounds: number of rounds.
    """
    descriptor = descriptor_of(repository)
    preprocessing = images.Preprocessing(descriptor.side, descriptor.resize)
    encoder, decoder = (
        load(repository, part, engine, GPU_NETWORK_FILE) for part in ("encoder", "decoder")
    )
    pixels = np.random.default_rng(0).integers(0, 256, (*SIZE_HW, 3), dtype=np.uint8)
    image = encoder_inputs(
        pixels, preprocessing.size_in_frame(SIZE_HW, descriptor.side), full_image(SIZE_HW)
    )
    names = list(descriptor.embedding)
    embedding = dict(zip(names, encoder(names, image), strict=True))
    click = partial(_decode, decoder, embedding, preprocessing)
    arms: dict[str, Callable[[], object]] = {
        "encoder with scaling": lambda: encoder(names, image),
        "decoder with masks, 1 prompt": lambda: click(1, SINGLE_OUTPUT),
        f"decoder with masks, {DECODER_BATCH_GPU} prompts, candidates": lambda: click(
            DECODER_BATCH_GPU, CANDIDATE_OUTPUTS
        ),
    }
    times = interleaved(arms, rounds, "graphs with the work on pixels")
    rows = [
        (f"{name}: {engine}", 1e3 * statistics.median(values), 1e3 * percentile(values, 95))
        for name, values in times.items()
    ]
    return table(("", "p50 ms", "p95 ms"), rows)


def _decode(
    decoder: Graph,
    embedding: Mapping[str, Array],
    preprocessing: images.Preprocessing,
    count: int,
    wanted: slice,
) -> None:
    """Make all masks of clicks on the middle of the image."""
    middle_xy = np.full((count, 1, 2), (SIZE[0] / 2, SIZE[1] / 2), np.float32)
    labels = np.full((count, 1), tensors.POSITIVE, np.int32)
    prompts = decoder_inputs(
        embedding,
        middle_xy,
        labels,
        size_hw=SIZE_HW,
        frame_hw=preprocessing.size_in_frame(SIZE_HW),
    )
    rule = MaskRule(wanted, SIZE_HW, preprocessing.valid_hw(SIZE_HW))
    decoder(CLICK_OUTPUTS, prompts | rule.inputs())
