"""Generated scenes: backgrounds of several regions, objects made of parts, and plausible target masks."""

from dataclasses import dataclass, field
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from training import camera, shapes
from training.textures import Material, Palette, TextureBank, natural_colour

SIDE = 256
MAX_LEAVES = 60
Rng = np.random.Generator
Picture = NDArray[np.float32]


@dataclass
class Scene:
    """Image (SIDE, SIDE, 3) uint8 RGB; `leaves` (SIDE, SIDE) uint8, number of the smallest unit at each pixel, from 1;
    `nodes` (N,) uint64, plausible targets as bit masks over the leaf numbers."""

    image: NDArray[np.uint8]
    leaves: NDArray[np.uint8]
    nodes: NDArray[np.uint64]


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
    return Scene(camera.photograph(rng, picture), studio.leaves, np.array(studio.nodes, np.uint64))


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


def _skyline(rng: Rng, height: float, wobble: float) -> NDArray[np.float32]:
    """Return y of a rough line across the picture, at about `height` of the side: (SIDE,) float32."""
    x = np.linspace(0, 1, SIDE)
    line = np.full(SIDE, height) + rng.normal(0, 0.12) * (x - 0.5)
    for octave in range(6):
        knots = rng.normal(0, wobble * 0.6**octave, 2 ** (octave + 1) + 2)
        line += np.interp(x, np.linspace(0, 1, len(knots)), knots)
    skyline: NDArray[np.float32] = (line * SIDE).astype(np.float32)
    return skyline


def _regions(rng: Rng) -> NDArray[np.uint8]:
    """Return the region of each pixel, separated by skylines or warped cells: (SIDE, SIDE) uint8 from 1."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    labels = np.ones((SIDE, SIDE), np.uint8)
    kind = rng.random()
    if kind < 0.15:
        return labels
    if kind < 0.7:
        heights = np.sort(rng.uniform(0.08, 0.92, int(rng.integers(1, 4))))
        for number, height in enumerate(heights):
            labels[y > _skyline(rng, height, rng.choice([0.0, 0.01, 0.05, 0.12]))[None]] = number + 2
        return labels if rng.random() < 0.92 else np.ascontiguousarray(labels.T)
    count = int(rng.integers(2, 7))
    seeds = rng.uniform(0, SIDE, (count, 2)).astype(np.float32)
    strength = rng.uniform(0, 25)
    x = x + camera.smooth_field(rng, SIDE, 6) * strength + camera.smooth_field(rng, SIDE, 30) * strength * 0.15
    y = y + camera.smooth_field(rng, SIDE, 6) * strength + camera.smooth_field(rng, SIDE, 30) * strength * 0.15
    distance = np.stack([(x - sx) ** 2 + (y - sy) ** 2 for sx, sy in seeds])
    labels[:] = distance.argmin(0) + 1
    return labels


def paint_background(studio: Studio) -> None:
    """Paint the background."""
    rng = studio.rng
    leaves = studio.leaves = _regions(rng)
    count = int(leaves.max())
    for leaf in range(1, count + 1):
        if studio.around and rng.random() < 0.25:
            material = studio.around[-1].akin(rng, rng.uniform(15, 50))
        else:
            material = studio.material()
            if leaf == 1 and rng.random() < 0.5:  # low contrast for sky or wall
                material.contrast *= 0.3
                material.recolour(rng, material.colour)
        studio.around.append(material)
        painted = studio.lit(material.painted(rng, SIDE).astype(np.float32), rng.choice([0.08, 0.25, 0.5]))
        alpha = cv2.GaussianBlur((leaves == leaf).astype(np.float32), (0, 0), 0.6)[..., None] if count > 1 else 1
        studio.picture += painted * alpha
    studio.nodes += [1 << leaf for leaf in range(1, count + 1)] * 2
    if rng.random() < 0.4:
        _clutter(studio)
    if rng.random() < 0.4:  # out of focus
        studio.picture = cv2.GaussianBlur(studio.picture, (0, 0), rng.uniform(0.5, 5)).astype(np.float32)


def _clutter(studio: Studio) -> None:
    """Paint stones, leaves and distant things on the background, in place, too small to be clicked."""
    rng = studio.rng
    drawn = shapes.DRAWERS[int(rng.integers(len(shapes.DRAWERS)))](rng)
    surfaces = [studio.material().painted(rng, SIDE) for _ in range(2)]
    low, high = sorted(rng.uniform(0.2, 1.1, 2))
    size = rng.uniform(0.03, 0.12)
    for _ in range(int(rng.integers(5, 60))):
        span = max(int(size * SIDE * rng.uniform(0.5, 1.5)), 4)
        stamp = cv2.resize(drawn, (span, span), interpolation=cv2.INTER_AREA) > 0
        top, left = int(rng.uniform(low, high) * SIDE), int(rng.integers(0, SIDE))
        window = studio.picture[top : top + span, left : left + span]
        stamp = stamp[: window.shape[0], : window.shape[1], None]
        if stamp.size:
            colour = surfaces[int(rng.integers(2))][top : top + span, left : left + span]
            np.copyto(window, colour, where=stamp, casting="unsafe")


class Kind(NamedTuple):
    """Common appearance of a group of objects: the drawing with its part numbers, and a material for each part."""

    drawn: shapes.Parts
    materials: list[Material]


def new_kind(studio: Studio) -> Kind:
    """Return a kind whose parts share a material, or have similar or unrelated ones, sometimes like the background."""
    rng = studio.rng
    drawn = shapes.DRAWERS[int(rng.integers(len(shapes.DRAWERS)))](rng)
    count = int(drawn.max())
    base = studio.material()
    if rng.random() < 0.15:
        base = studio.around[int(rng.integers(len(studio.around)))].akin(rng, 30)
    mode = rng.random()
    if mode < 0.3:
        materials = [base] * count
    elif mode < 0.6:
        materials = [base, *(base.akin(rng, rng.uniform(15, 70)) for _ in range(count - 1))]
    else:
        materials = [base, *(studio.material() if rng.random() < 0.7 else base for _ in range(count - 1))]
    return Kind(drawn, materials)


def _decorate(rng: Rng, surface: Picture, where: NDArray[np.bool_]) -> None:
    """Paint marks that are not parts (windows, spots, eyes, letters) onto `where`, in place."""
    ys, xs = np.nonzero(where)
    if len(ys) < 80:
        return
    extent = np.sqrt(len(ys))
    colour = natural_colour(rng)
    layer = np.zeros((SIDE, SIDE), np.uint8)
    for pick in rng.integers(0, len(ys), int(rng.integers(1, 14))):
        size = max(int(extent * rng.uniform(0.02, 0.12)), 1)
        at = (int(xs[pick]), int(ys[pick]))
        if rng.random() < 0.5:
            cv2.circle(layer, at, size, (255,), -1, cv2.LINE_AA)
        else:
            cv2.rectangle(layer, at, (at[0] + size, at[1] + size * 2), (255,), -1)
    alpha = (layer * where).astype(np.float32)[..., None] / 255
    surface += alpha * (colour - surface)


def _painted(studio: Studio, kind: Kind, parts: shapes.Parts, solid: NDArray[np.uint8]) -> Picture:
    """Return the surface of an object with these placed parts, black elsewhere: (SIDE, SIDE, 3) float32."""
    rng = studio.rng
    surface = np.zeros((SIDE, SIDE, 3), np.float32)
    for number in np.unique(parts[parts > 0]):
        where = parts == number
        np.copyto(surface, kind.materials[number - 1].painted(rng, SIDE), where=where[..., None], casting="unsafe")
        if rng.random() < 0.25:
            _decorate(rng, surface, where)
    if rng.random() < 0.6:
        surface *= camera.relief(rng, solid, studio.light)[..., None]
    if rng.random() < 0.5:
        surface = studio.lit(surface, rng.uniform(0.1, 0.4)) * solid[..., None]
    return surface


def _laid(studio: Studio, surface: Picture, solid: NDArray[np.uint8]) -> None:
    """Paint `surface` onto the picture inside `solid`, with a soft rim and, half the time, a shadow."""
    rng = studio.rng
    soft = rng.choice([0.5, 0.7, 1.0, 1.8], p=[0.35, 0.35, 0.2, 0.1])
    alpha = cv2.GaussianBlur(solid.astype(np.float32), (0, 0), soft).astype(np.float32)
    spread = cv2.GaussianBlur(surface, (0, 0), soft)  # colour at the soft rim: the surface's own, not black
    rim = (solid == 0) & (alpha > 0.01)
    surface[rim] = spread[rim] / alpha[rim][:, None]
    if rng.random() < 0.5:
        studio.picture *= camera.cast_shadow(rng, alpha, studio.light)[..., None]
    studio.picture += alpha[..., None] * (surface - studio.picture)


def paint_object(studio: Studio, kind: Kind) -> None:
    """Paint an object at a random place, unless it would be too small or there are too many leaves."""
    rng = studio.rng
    size = float(np.exp(rng.uniform(np.log(0.17), np.log(1.5))))
    centre = (rng.normal(0.5, 0.27), rng.normal(0.52, 0.25))
    rough = rng.choice([0.0, 0.3, 1.0, 3.0]) * min(size * 2, 1)
    parts = shapes.placed(rng, kind.drawn, SIDE, size=size, centre_xy=centre, rough=rough)
    solid = (parts > 0).astype(np.uint8)
    numbers = np.unique(parts[parts > 0])
    first = int(studio.leaves.max()) + 1
    if first + len(numbers) > MAX_LEAVES or int(solid.sum()) < 60:
        return
    _laid(studio, _painted(studio, kind, parts, solid), solid)
    leaves = range(first, first + len(numbers))
    for leaf, number in zip(leaves, numbers, strict=True):
        studio.leaves[parts == number] = leaf
    whole = sum(1 << leaf for leaf in leaves)
    studio.nodes += [whole] * 3
    if len(numbers) > 1:
        studio.nodes += [1 << leaf for leaf in leaves]
    if len(numbers) > 2 and rng.random() < 0.3:
        studio.nodes.append(whole & ~(1 << int(rng.choice(leaves))))
