"""JPEG by nvImageCodec on the GPU beside libjpeg-turbo: pixels, masks and times.

The package `nvidia-nvimgcodec-cu12` or `-cu13` is no dependency. Without a GPU, it decodes on the
CPU.
"""

import importlib
import statistics
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.objects import Picture, iou
from benchmarks.photo import POINTS, photo
from benchmarks.recording import Recorder
from benchmarks.stats import interleaved, table
from orchestrator.images import decode, open_image

PACKAGE = "nvidia.nvimgcodec"
ROUNDS = 20


def is_installed() -> bool:
    """Return whether nvImageCodec is installed."""
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:  # no package of NVIDIA's
        return False


def compare(repository: Path, *, on_gpu: bool) -> str:
    """Return a table of times, and how far pixels and masks differ.

    Args:
        repository: the model repository.
        on_gpu: whether nvImageCodec decodes on the GPU.

    Raises:
        RuntimeError: nvImageCodec returned no image.
    """
    file = photo()
    decoder = _decoder(on_gpu=on_gpu)
    ours, theirs = _ours(file), _theirs(decoder, file)
    arms = {"libjpeg-turbo": lambda: _ours(file), "nvImageCodec": lambda: _theirs(decoder, file)}
    times = interleaved(arms, ROUNDS, "JPEG")
    rows = [(name, 1e3 * statistics.median(values)) for name, values in times.items()]
    shown = table(("JPEG of 1800 x 1200, to the host's memory", "p50 ms"), rows)

    differences = np.abs(ours.astype(np.int16) - theirs)
    points_xy = np.array(POINTS, np.float32)[:, None]
    masks = [
        Recorder(repository, picture).logits(points_xy)[0][:, 0] > 0 for picture in (ours, theirs)
    ]
    ious = [iou(*pair) for pair in zip(*masks, strict=True)]
    return (
        f"{shown}\n\nPixel values that differ: {np.mean(differences > 0):.2%}, by at most"
        f" {differences.max()}. IoU of {len(ious)} masks: mean {np.mean(ious):.4f}, least"
        f" {min(ious):.4f}."
    )


def _decoder(*, on_gpu: bool) -> Any:
    nvimgcodec = importlib.import_module(PACKAGE)
    if on_gpu:
        return nvimgcodec.Decoder()
    on_cpu = nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)
    return nvimgcodec.Decoder(device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY, backends=[on_cpu])


def _ours(file: bytes) -> Picture:
    return decode(open_image(file, 10**8))[0]


def _theirs(decoder: Any, file: bytes) -> Picture:
    """Decode a file, and copy its pixels to the host's memory if they are on the GPU."""
    image = decoder.decode(file)
    if image is None:
        raise RuntimeError("nvImageCodec: expected an image, got none")
    return np.asarray(image.cpu())
