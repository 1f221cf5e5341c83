"""Generated scenes: backgrounds of several regions, objects made of parts in front, and which masks a person might mean.

Preview: `python -m training.scenes --sheet out.png`
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from training import camera, shapes
from training.textures import Material, Palette, TextureBank, natural_colour

SIDE = 256
MAX_LEAVES = 60
Rng = np.random.Generator


@dataclass
class Scene:
    """`image` (SIDE, SIDE, 3) uint8 RGB; `leaves` (SIDE, SIDE) uint8, the number of the smallest unit at each pixel, from 1;
    `nodes` sets of leaves that a person could mean, as bit masks over the leaf numbers."""

    image: NDArray[np.uint8]
    leaves: NDArray[np.uint8]
    nodes: list[int] = field(default_factory=list)

    def mask(self, node: int) -> NDArray[np.bool_]:
        """(SIDE, SIDE) bool: where the leaves of `node` are."""
        table = np.array([node >> leaf & 1 for leaf in range(MAX_LEAVES + 1)], bool)
        return table[self.leaves]


def _skyline(rng: Rng, height: float, wobble: float) -> NDArray[np.float32]:
    """(SIDE,) float32: the y of a rough line across the picture, about `height` of the side."""
    x = np.linspace(0, 1, SIDE)
    line = np.full(SIDE, height) + rng.normal(0, 0.12) * (x - 0.5)
    for octave in range(6):
        knots = rng.normal(0, wobble * 0.6**octave, 2 ** (octave + 1) + 2)
        line += np.interp(x, np.linspace(0, 1, len(knots)), knots)
    return (line * SIDE).astype(np.float32)


def _regions(rng: Rng) -> NDArray[np.uint8]:
    """(SIDE, SIDE) uint8 from 1: the background, cut by skylines or into warped cells."""
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
    return (distance.argmin(0) + 1).astype(np.uint8)


def _lit(rng: Rng, picture: NDArray[np.float32], strength: float) -> NDArray[np.float32]:
    """Shade a surface by a ramp and slow noise."""
    light = 1 + strength * rng.normal() * camera.ramp(rng, SIDE)
    if rng.random() < 0.5:
        light += strength * 0.5 * camera.smooth_field(rng, SIDE, int(rng.integers(2, 5)))
    return picture * np.clip(light, 0.25, 2.0)[..., None]


def _background(
    rng: Rng, bank: TextureBank, palette: Palette
) -> tuple[NDArray[np.float32], NDArray[np.uint8], list[Material], list[int]]:
    """Paint the regions behind everything: picture, leaves, the materials used, and the nodes."""
    leaves = _regions(rng)
    picture = np.zeros((SIDE, SIDE, 3), np.float32)
    materials: list[Material] = []
    count = int(leaves.max())
    for leaf in range(1, count + 1):
        if materials and rng.random() < 0.25:
            material = materials[-1].akin(rng, rng.uniform(15, 50))
        else:
            material = Material(rng, bank, palette.colour(rng))
            if leaf == 1 and rng.random() < 0.5:  # sky or wall: calm
                material.contrast *= 0.3
                material.recolour(rng, material.colour)
        materials.append(material)
        painted = _lit(rng, material.painted(rng, SIDE).astype(np.float32), rng.choice([0.08, 0.25, 0.5]))
        alpha = cv2.GaussianBlur((leaves == leaf).astype(np.float32), (0, 0), 0.6)[..., None] if count > 1 else 1
        picture += painted * alpha
    nodes = [1 << leaf for leaf in range(1, count + 1)] * 2
    if rng.random() < 0.4:
        _clutter(rng, bank, palette, picture)
    if rng.random() < 0.4:
        picture = cv2.GaussianBlur(picture, (0, 0), rng.uniform(0.5, 5))  # out of focus
    return picture, leaves, materials, nodes


def _clutter(rng: Rng, bank: TextureBank, palette: Palette, picture: NDArray[np.float32]) -> None:
    """Strew stones, leaves, distant things over the background, in place: too small to be meant by a click."""
    drawn = shapes.DRAWERS[int(rng.integers(len(shapes.DRAWERS)))](rng)
    surfaces = [Material(rng, bank, palette.colour(rng)).painted(rng, SIDE) for _ in range(2)]
    low, high = sorted(rng.uniform(0.2, 1.1, 2))
    size = rng.uniform(0.03, 0.12)
    for _ in range(int(rng.integers(5, 60))):
        span = max(int(size * SIDE * rng.uniform(0.5, 1.5)), 4)
        stamp = cv2.resize(drawn, (span, span), interpolation=cv2.INTER_AREA) > 0
        top, left = int(rng.uniform(low, high) * SIDE), int(rng.integers(0, SIDE))
        window = picture[top : top + span, left : left + span]
        stamp = stamp[: window.shape[0], : window.shape[1], None]
        if stamp.size:
            colour = surfaces[int(rng.integers(2))][top : top + span, left : left + span]
            np.copyto(window, colour, where=stamp, casting="unsafe")


def _part_materials(
    rng: Rng, bank: TextureBank, palette: Palette, count: int, around: list[Material]
) -> list[Material]:
    """One material for each of `count` parts: all alike, kin, or strangers; sometimes close to the background."""
    base = Material(rng, bank, palette.colour(rng))
    if rng.random() < 0.15:
        base = around[int(rng.integers(len(around)))].akin(rng, 30)
    mode = rng.random()
    if mode < 0.3:
        return [base] * count
    if mode < 0.6:
        return [base] + [base.akin(rng, rng.uniform(15, 70)) for _ in range(count - 1)]
    return [base] + [Material(rng, bank, palette.colour(rng)) if rng.random() < 0.7 else base for _ in range(count - 1)]


def _decorate(rng: Rng, picture: NDArray[np.float32], where: NDArray[np.bool_]) -> None:
    """Marks that are no part of their own (windows, spots, eyes, letters), painted over `where` in place."""
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
            cv2.circle(layer, at, size, 255, -1, cv2.LINE_AA)
        else:
            cv2.rectangle(layer, at, (at[0] + size, at[1] + size * 2), 255, -1)
    alpha = (layer * where).astype(np.float32)[..., None] / 255
    picture += alpha * (colour - picture)


def _add_object(
    rng: Rng, bank: TextureBank, palette: Palette, picture: NDArray[np.float32], leaves: NDArray[np.uint8],
    around: list[Material], light: NDArray[np.float64], like: tuple[NDArray[np.uint8], list[Material]] | None,
) -> tuple[list[int], tuple[NDArray[np.uint8], list[Material]]]:  # fmt: skip
    """Paint one object over `picture` and `leaves` in place; answers its nodes and what a twin needs."""
    drawn = like[0] if like else shapes.DRAWERS[int(rng.integers(len(shapes.DRAWERS)))](rng)
    size = float(np.exp(rng.uniform(np.log(0.17), np.log(1.5))))
    centre = (rng.normal(0.5, 0.27), rng.normal(0.52, 0.25))
    parts = shapes.placed(rng, drawn, SIDE, size, centre, rng.choice([0.0, 0.3, 1.0, 3.0]) * min(size * 2, 1))
    numbers = [int(n) for n in np.unique(parts) if n]
    first = int(leaves.max())
    solid = (parts > 0).astype(np.uint8)
    if not numbers or first + len(numbers) > MAX_LEAVES or int(solid.sum()) < 60:
        return [], like or (drawn, [])
    count = int(drawn.max())
    materials = like[1] if like and like[1] else _part_materials(rng, bank, palette, count, around)
    surface = np.zeros((SIDE, SIDE, 3), np.float32)
    for number in numbers:
        material = materials[min(number - 1, len(materials) - 1)]
        where = parts == number
        painted = material.painted(rng, SIDE)
        np.copyto(surface, painted, where=where[..., None], casting="unsafe")
        if rng.random() < 0.25:
            _decorate(rng, surface, where)
    if rng.random() < 0.6:
        surface *= camera.relief(rng, solid, light)[..., None]
    if rng.random() < 0.5:
        surface = _lit(rng, surface, rng.uniform(0.1, 0.4))
    soft = rng.choice([0.5, 0.7, 1.0, 1.8], p=[0.35, 0.35, 0.2, 0.1])
    alpha = cv2.GaussianBlur(solid.astype(np.float32), (0, 0), soft)
    spread = cv2.GaussianBlur(surface, (0, 0), soft)  # colour at the soft rim: the surface's own, not black
    rim = (solid == 0) & (alpha > 0.01)
    surface[rim] = spread[rim] / alpha[rim][:, None]
    if rng.random() < 0.5:
        picture *= camera.cast_shadow(rng, alpha, light)[..., None]
    picture += alpha[..., None] * (surface - picture)
    nodes: list[int] = []
    whole = 0
    for offset, number in enumerate(numbers):
        leaf = first + 1 + offset
        leaves[parts == number] = leaf
        whole |= 1 << leaf
    nodes += [whole] * 3
    if len(numbers) > 1:
        nodes += [1 << (first + 1 + offset) for offset in range(len(numbers))]
        drop = 1 << (first + 1 + int(rng.integers(len(numbers))))
        if len(numbers) > 2 and rng.random() < 0.3:
            nodes.append(whole & ~drop)
    return nodes, (drawn, materials)


def make_scene(rng: Rng, bank: TextureBank) -> Scene:
    """One scene; the same generator state gives the same scene."""
    palette = Palette(rng)
    picture, leaves, around, nodes = _background(rng, bank, palette)
    angle = rng.uniform(0, 2 * np.pi)
    light = np.array([np.cos(angle), np.sin(angle)])
    like, herd = None, rng.choice([0.1, 0.8], p=[0.75, 0.25])
    for _ in range(int(rng.choice([1, 2, 3, 4, 6, 9], p=[0.2, 0.22, 0.22, 0.16, 0.12, 0.08]))):
        twin = like if rng.random() < herd else None
        new, like = _add_object(rng, bank, palette, picture, leaves, around, light, twin)
        nodes += new
    if rng.random() < 0.2:
        picture *= camera.dappled(rng, SIDE)[..., None]
    picture = _lit(rng, picture, 0.1)
    return Scene(camera.photograph(rng, picture), leaves, nodes)


def sheet(count: int, seed: int, columns: int = 6) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 RGB: pictures of `count` scenes, each above its leaves in random colours."""
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
    """Write a preview sheet and say how long a scene takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sheet", required=True, help="PNG to write")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    picture = sheet(arguments.count, arguments.seed)
    cv2.imwrite(arguments.sheet, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    print(f"{arguments.count} scenes and the texture bank in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
