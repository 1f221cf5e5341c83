"""What all painters of one scene share: random state, colours of the place, light, and the canvas so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from training import camera
from training.textures import Material, Palette, TextureBank

SIDE = 256
MAX_LEAVES = 60
Rng = np.random.Generator
Picture = NDArray[np.float32]


@dataclass
class Studio:
    """`picture` (SIDE, SIDE, 3) float32 RGB 0..255 and `leaves` (SIDE, SIDE) uint8 are painted over in place; `nodes`
    are the sets of leaves a person could mean, as bit masks; `light` is the direction x, y that it comes from."""

    rng: Rng
    bank: TextureBank
    palette: Palette
    light: NDArray[np.float64]
    picture: Picture = field(default_factory=lambda: np.zeros((SIDE, SIDE, 3), np.float32))
    leaves: NDArray[np.uint8] = field(default_factory=lambda: np.ones((SIDE, SIDE), np.uint8))
    around: list[Material] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    def material(self) -> Material:
        """A new material in a colour of the place."""
        return Material(self.rng, self.bank, self.palette.colour(self.rng))

    def lit(self, surface: Picture, strength: float) -> Picture:
        """`surface` (SIDE, SIDE, 3) shaded by a ramp and slow noise, sometimes changing its colour."""
        light = 1 + strength * self.rng.normal() * camera.ramp(self.rng, SIDE)
        if self.rng.random() < 0.5:
            light += strength * 0.5 * camera.smooth_field(self.rng, SIDE, int(self.rng.integers(2, 5)))
        if self.rng.random() < 0.3:  # from one colour to another, as skies, walls and water go
            share = np.clip(0.5 + self.rng.uniform(0.4, 1.2) * camera.ramp(self.rng, SIDE), 0, 1) * self.rng.uniform(
                0.3, 0.9
            )
            surface = surface + share[..., None] * (self.palette.colour(self.rng) - surface)
        shaded: Picture = surface * np.clip(light, 0.25, 2.0)[..., None]
        return shaded
