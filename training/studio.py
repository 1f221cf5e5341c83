"""Shared state of a scene's painters: random state, palette, light, and the canvas so far."""

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
    """State of a scene: `picture` (SIDE, SIDE, 3) float32 RGB 0..255 and `leaves` (SIDE, SIDE) uint8, both painted in
    place; `nodes`, plausible targets as bit masks over leaf numbers; direction of the `light`, x then y."""

    rng: Rng
    bank: TextureBank
    palette: Palette
    light: NDArray[np.float64]
    picture: Picture = field(default_factory=lambda: np.zeros((SIDE, SIDE, 3), np.float32))
    leaves: NDArray[np.uint8] = field(default_factory=lambda: np.ones((SIDE, SIDE), np.uint8))
    around: list[Material] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    def material(self) -> Material:
        """Return a new material in a colour of the palette."""
        return Material(self.rng, self.bank, self.palette.colour(self.rng))

    def lit(self, surface: Picture, strength: float) -> Picture:
        """Shade `surface` (SIDE, SIDE, 3) with a ramp and smooth noise, sometimes changing its colour."""
        light = 1 + strength * self.rng.normal() * camera.ramp(self.rng, SIDE)
        if self.rng.random() < 0.5:
            light += strength * 0.5 * camera.smooth_field(self.rng, SIDE, int(self.rng.integers(2, 5)))
        if self.rng.random() < 0.3:  # gradient between two colours, as in skies, walls and water
            share = np.clip(0.5 + self.rng.uniform(0.4, 1.2) * camera.ramp(self.rng, SIDE), 0, 1) * self.rng.uniform(
                0.3, 0.9
            )
            surface = surface + share[..., None] * (self.palette.colour(self.rng) - surface)
        shaded: Picture = surface * np.clip(light, 0.25, 2.0)[..., None]
        return shaded
