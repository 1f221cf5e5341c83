"""Shards of 256 scenes, rendered before training: `python -m training.shards --out DIR --from 0 --to 40`."""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from training.scenes import make_scene
from training.studio import SIDE
from training.textures import TextureBank

SCENES = 256
NODES = 80


def write_shard(folder: Path, number: int) -> None:
    """Render shard `number`, which is its seed; the texture bank changes every sixteen shards.

    Writes .npy files: `images` (256, 256, 256, 3) uint8, `leaves` (256, 256, 256) uint8, `nodes` (256, 80) uint64.
    """
    bank = TextureBank(number // 16)
    rng = np.random.default_rng([number, 7])
    images = np.empty((SCENES, SIDE, SIDE, 3), np.uint8)
    leaves = np.empty((SCENES, SIDE, SIDE), np.uint8)
    nodes = np.zeros((SCENES, NODES), np.uint64)
    for index in tqdm(range(SCENES), desc=f"shard {number}", leave=False):
        scene = make_scene(rng, bank)
        images[index], leaves[index] = scene.image, scene.leaves
        kept = scene.nodes[:NODES]
        nodes[index, : len(kept)] = kept
    np.save(folder / f"nodes_{number:04d}.npy", nodes)
    np.save(folder / f"leaves_{number:04d}.npy", leaves)
    partial = folder / f"images_{number:04d}.partial.npy"
    np.save(partial, images)
    partial.rename(folder / f"images_{number:04d}.npy")  # written last and atomically: a shard with images is complete


class Shard:
    """Memory-mapped shard on disk."""

    def __init__(self, images_file: Path) -> None:
        number = images_file.stem.split("_")[1]
        folder = images_file.parent
        self.images: NDArray[np.uint8] = np.load(images_file, mmap_mode="r")
        self.leaves: NDArray[np.uint8] = np.load(folder / f"leaves_{number}.npy", mmap_mode="r")
        self.nodes: NDArray[np.uint64] = np.load(folder / f"nodes_{number}.npy")


def complete_shards(folder: Path) -> list[Path]:
    """Return the image files of all complete shards, in order."""
    return sorted(p for p in folder.glob("images_*.npy") if "partial" not in p.name)


def main() -> None:
    """Run the command: render the requested shards that do not exist yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the shards")
    parser.add_argument("--from", type=int, default=0, dest="first", help="first shard")
    parser.add_argument("--to", type=int, required=True, help="end of the range, not included")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.first, arguments.to):
        if not (arguments.out / f"images_{number:04d}.npy").exists():
            write_shard(arguments.out, number)


if __name__ == "__main__":
    main()
