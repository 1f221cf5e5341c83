"""Objects: outlines of parts with materials, relief, marks, a soft rim and a shadow."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from training import camera, shapes
from training.studio import MAX_LEAVES, SIDE, Picture, Rng, Studio
from training.textures import Material, natural_colour


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
            cv2.circle(layer, at, size, 255, -1, cv2.LINE_AA)
        else:
            cv2.rectangle(layer, at, (at[0] + size, at[1] + size * 2), 255, -1)
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
