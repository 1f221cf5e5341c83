"""Generated scenes: backgrounds of several regions, objects made of parts, and plausible target masks.

Preview: `python -m training.scenes --sheet out.png`
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from training import camera
from training.backgrounds import paint_background
from training.objects import new_kind, paint_object
from training.studio import MAX_LEAVES, SIDE, Rng, Studio
from training.textures import Palette, TextureBank


@dataclass
class Scene:
    """Image (SIDE, SIDE, 3) uint8 RGB; `leaves` (SIDE, SIDE) uint8, number of the smallest unit at each pixel, from 1;
    `nodes`, plausible targets as bit masks over the leaf numbers."""

    image: NDArray[np.uint8]
    leaves: NDArray[np.uint8]
    nodes: list[int] = field(default_factory=list)

    def mask(self, node: int) -> NDArray[np.bool_]:
        """Return the mask of a node's leaves, (SIDE, SIDE) bool."""
        table = np.array([node >> leaf & 1 for leaf in range(MAX_LEAVES + 1)], bool)
        return table[self.leaves]


def make_scene(rng: Rng, bank: TextureBank) -> Scene:
    """Return a scene that depends only on the generator's state."""
    angle = rng.uniform(0, 2 * np.pi)
    studio = Studio(rng, bank, Palette(rng), np.array([np.cos(angle), np.sin(angle)]))
    paint_background(studio)
    kind, herd = new_kind(studio), rng.choice([0.1, 0.8], p=[0.75, 0.25])
    for _ in range(int(rng.choice([1, 2, 3, 4, 6, 9], p=[0.2, 0.22, 0.22, 0.16, 0.12, 0.08]))):
        paint_object(studio, kind)
        kind = kind if rng.random() < herd else new_kind(studio)
    if rng.random() < 0.2:
        studio.picture *= camera.dappled(rng, SIDE)[..., None]
    picture = studio.picture * np.clip(1 + rng.normal(0, 0.1) * camera.ramp(rng, SIDE), 0.5, 1.5)[..., None]
    return Scene(camera.photograph(rng, picture), studio.leaves, studio.nodes)


def sheet(count: int, seed: int, columns: int = 6) -> NDArray[np.uint8]:
    """Return pictures of `count` scenes, each above its leaves in random colours: (H, W, 3) uint8 RGB."""
    bank = TextureBank(seed)
    rng = np.random.default_rng(seed)
    tint = np.random.default_rng(0).integers(40, 255, (MAX_LEAVES + 1, 3)).astype(np.uint8)
    tiles = []
    for _ in range(count):
        scene = make_scene(rng, bank)
        tiles.append(np.vstack([scene.image, tint[scene.leaves]]))
    rows = [np.hstack(tiles[at : at + columns]) for at in range(0, count, columns)]
    return np.vstack(rows)


def main() -> None:
    """Write a preview sheet and print how long a scene takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sheet", required=True, help="PNG to write")
    parser.add_argument("--count", type=int, default=24, help="number of scenes")
    parser.add_argument("--seed", type=int, default=1, help="seed of the scenes")
    arguments = parser.parse_args()
    started = time.perf_counter()
    picture = sheet(arguments.count, arguments.seed)
    cv2.imwrite(arguments.sheet, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    print(f"{arguments.count} scenes and the texture bank in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
