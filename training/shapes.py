"""Outlines of objects. Each drawer returns a canvas of part numbers (0: none) in its own unit square."""

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

Rng = np.random.Generator
Parts = NDArray[np.uint8]
Points = NDArray[np.float64]
UNIT = 320  # side of the drawers' canvas


def _canvas() -> Parts:
    return np.zeros((UNIT, UNIT), np.uint8)


def _fill(canvas: Parts, points: Points, part: int) -> None:
    """Fill a polygon; `points` (N, 2) in the unit square, x then y."""
    cv2.fillPoly(canvas, [np.round(points * UNIT).astype(np.int32)], (part,))


def _oval(canvas: Parts, centre: tuple[float, float], radii: tuple[float, float], degrees: float, part: int) -> None:
    axes = (max(int(radii[0] * UNIT), 1), max(int(radii[1] * UNIT), 1))
    cv2.ellipse(canvas, (int(centre[0] * UNIT), int(centre[1] * UNIT)), axes, degrees, 0, 360, (part,), -1)


def _limb(canvas: Parts, points: Points, width: float, part: int) -> None:
    cv2.polylines(canvas, [np.round(points * UNIT).astype(np.int32)], False, (part,), max(int(width * UNIT), 1))


def ring(rng: Rng, wobble: float, count: int = 60) -> Points:
    """Return a closed outline around (0.5, 0.5), a circle with low Fourier terms of strength `wobble`: (count, 2)."""
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    radius = np.ones(count)
    for term in range(2, 8):
        radius += wobble / term * rng.normal() * np.cos(term * angle + rng.uniform(0, 6.3))
    radius = np.clip(radius, 0.25, None)
    outline: Points = 0.5 + 0.42 * (radius / radius.max())[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return outline


def blob(rng: Rng) -> Parts:
    """Draw a rounded shape, sometimes with bands or patches as parts."""
    canvas = _canvas()
    _fill(canvas, ring(rng, rng.uniform(0, 0.8)), 1)
    inside = canvas > 0
    if rng.random() < 0.4:
        edge = rng.uniform(0.3, 0.7)
        canvas[int(edge * UNIT) :] = 2
        if rng.random() < 0.3:
            canvas[int((edge + 0.15) * UNIT) :] = 3
    elif rng.random() < 0.4:
        _fill(canvas, (ring(rng, 0.5) - 0.5) * rng.uniform(0.3, 0.7) + rng.uniform(0.35, 0.65, 2), 2)
    return canvas * inside


def polygon(rng: Rng) -> Parts:
    """Draw a polygon of three to eight corners."""
    canvas = _canvas()
    angle = np.sort((np.arange(k := int(rng.integers(3, 9))) + rng.uniform(-0.35, 0.35, k)) / k * 2 * np.pi)
    _fill(canvas, 0.5 + rng.uniform(0.3, 0.48, (k, 1)) * np.stack([np.cos(angle), np.sin(angle)], 1), 1)
    return canvas


def house(rng: Rng) -> Parts:
    """Draw walls, a roof, and sometimes a door or a second storey."""
    canvas = _canvas()
    eaves, left, right = rng.uniform(0.25, 0.5), rng.uniform(0.05, 0.2), rng.uniform(0.8, 0.95)
    _fill(canvas, np.array([[left, eaves], [right, eaves], [right, 0.95], [left, 0.95]]), 1)
    ridge = rng.uniform(0.3, 0.7)
    tops = [[ridge, 0.05]] if rng.random() < 0.6 else [[ridge - 0.15, 0.08], [ridge + 0.15, 0.08]]
    _fill(canvas, np.array([[left - 0.04, eaves], *tops, [right + 0.04, eaves]]), 2)
    if rng.random() < 0.5:
        door = rng.uniform(left, right - 0.15)
        _fill(canvas, np.array([[door, 0.7], [door + 0.13, 0.7], [door + 0.13, 0.95], [door, 0.95]]), 3)
    return canvas


def creature(rng: Rng) -> Parts:
    """Draw a four-legged or winged animal from the side: body, legs, neck and head, tail."""
    canvas = _canvas()
    length, depth = rng.uniform(0.22, 0.32), rng.uniform(0.1, 0.18)
    low = rng.uniform(0.75, 0.97)
    legs = 4 if rng.random() < 0.75 else 0
    for leg in range(legs):
        x = 0.5 + (length * 0.8) * (-1 if leg < 2 else 1) + rng.uniform(-0.06, 0.06)
        knee = (0.55 + low) / 2
        path = np.array([[x, 0.52], [x + rng.uniform(-0.05, 0.05), knee], [x + rng.uniform(-0.08, 0.08), low]])
        _limb(canvas, path, rng.uniform(0.035, 0.075), 2)
    _oval(canvas, (0.5, 0.5), (length, depth), rng.uniform(-12, 12), 1)
    head = np.array([0.5 + length + rng.uniform(-0.02, 0.12), rng.uniform(0.18, 0.5)])
    if rng.random() < 0.8:
        _limb(canvas, np.array([[0.5 + length * 0.8, 0.48], head]), rng.uniform(0.06, 0.14), 1)
    _oval(canvas, (head[0], head[1]), (rng.uniform(0.06, 0.12), rng.uniform(0.05, 0.09)), rng.uniform(0, 60), 3)
    ear = np.array([0.04, 0])
    for _ in range(int(rng.integers(0, 3))):
        tip = head + np.array([rng.uniform(-0.06, 0.04), rng.uniform(-0.14, -0.06)])
        _fill(canvas, np.array([head - ear, tip, head + ear]), 3)
    if rng.random() < 0.7:
        tail = np.array(
            [[0.5 - length * 0.9, 0.46], [0.4 - length, rng.uniform(0.3, 0.6)], [0.33 - length, rng.uniform(0.2, 0.8)]]
        )
        _limb(canvas, tail, rng.uniform(0.02, 0.06), 1)
    return canvas


def person(rng: Rng) -> Parts:
    """Draw a person, standing or as a bust: head, hair or hat, top, trousers."""
    canvas = _canvas()
    bust = rng.random() < 0.35
    shoulder, hip = rng.uniform(0.1, 0.16), 0.6
    _fill(
        canvas,
        np.array(
            [[0.5 - shoulder, 0.27], [0.5 + shoulder, 0.27], [0.5 + shoulder * 0.8, hip], [0.5 - shoulder * 0.8, hip]]
        ),
        1,
    )
    for side in (-1, 1):
        elbow = [0.5 + side * (shoulder + rng.uniform(0, 0.12)), rng.uniform(0.38, 0.5)]
        hand = [elbow[0] + rng.uniform(-0.12, 0.12), rng.uniform(0.3, 0.66)]
        arm = np.array([[0.5 + side * shoulder * 0.85, 0.29], elbow, hand])
        _limb(canvas, arm, 0.055, 1)
        _oval(canvas, (hand[0], hand[1]), (0.028, 0.028), 0, 3)
        foot = 0.5 + side * rng.uniform(0.02, 0.14)
        _limb(
            canvas,
            np.array([[0.5 + side * 0.05, hip - 0.02], [foot, 0.78], [foot + rng.uniform(-0.05, 0.05), 0.97]]),
            0.075,
            2,
        )
    _oval(canvas, (0.5, 0.17), (0.065, 0.085), 0, 3)
    _limb(canvas, np.array([[0.5, 0.2], [0.5, 0.28]]), 0.06, 3)
    cv2.ellipse(canvas, (UNIT // 2, int(0.15 * UNIT)), (int(0.075 * UNIT), int(0.085 * UNIT)), 0, 180, 360, (4,), -1)
    if rng.random() < 0.4:
        _fill(canvas, np.array([[0.4, 0.12], [0.6, 0.12], [0.56, 0.05], [0.44, 0.05]]), 4)
    if bust:
        return np.ascontiguousarray(
            cv2.resize(canvas[4 : UNIT // 2, UNIT // 4 : 3 * UNIT // 4], (UNIT, UNIT), interpolation=cv2.INTER_NEAREST)
        )
    return canvas


def tree(rng: Rng) -> Parts:
    """Draw a trunk with a crown of many circles, or a fir."""
    canvas = _canvas()
    width = rng.uniform(0.02, 0.07)
    lean = rng.uniform(-0.1, 0.1)
    _limb(canvas, np.array([[0.5, 0.97], [0.5 + lean, 0.35]]), width, 2)
    if rng.random() < 0.3:
        for tier in range(4):
            y = 0.05 + tier * 0.18
            _fill(canvas, np.array([[0.5, y], [0.58 + tier * 0.08, y + 0.28], [0.42 - tier * 0.08, y + 0.28]]), 1)
        return canvas
    for _ in range(int(rng.integers(3, 14))):
        centre = (0.5 + lean + rng.normal(0, 0.14), 0.32 + rng.normal(0, 0.09))
        _oval(canvas, centre, (rng.uniform(0.06, 0.18), rng.uniform(0.05, 0.14)), 0, 1)
    return canvas


def vehicle(rng: Rng) -> Parts:
    """Draw a vehicle: a body, a cabin with windows, wheels."""
    canvas = _canvas()
    roof, belt, floor = rng.uniform(0.25, 0.36), rng.uniform(0.44, 0.52), rng.uniform(0.64, 0.74)
    a, b = rng.uniform(0.15, 0.35), rng.uniform(0.65, 0.85)
    _fill(canvas, np.array([[a - 0.1, belt], [a, roof], [b, roof], [b + 0.1, belt]]), 1)
    glass = np.array([[a - 0.05, belt], [a + 0.02, roof + 0.04], [b - 0.02, roof + 0.04], [b + 0.05, belt]])
    _fill(canvas, glass, 2)
    post = rng.uniform(0.4, 0.6)
    _limb(canvas, np.array([[post, roof], [post, belt]]), 0.03, 1)
    _fill(
        canvas,
        np.array(
            [[0.04, belt + 0.03], [a - 0.1, belt], [b + 0.1, belt], [0.96, belt + 0.06], [0.97, floor], [0.03, floor]]
        ),
        1,
    )
    for x in (rng.uniform(0.17, 0.27), rng.uniform(0.73, 0.83)):
        radius = rng.uniform(0.07, 0.1)
        _oval(canvas, (x, floor), (radius, radius), 0, 3)
    return canvas


def vessel(rng: Rng) -> Parts:
    """Draw a vase, bottle, lamp or mushroom: a profile mirrored at the vertical axis, in one to three bands."""
    canvas = _canvas()
    knots = np.clip(rng.uniform(0.05, 0.4, 6), 0.04, 0.45)
    y = np.linspace(0.04, 0.96, 40)
    half = np.interp(y, np.linspace(0.04, 0.96, 6), knots)
    half = np.convolve(np.pad(half, 4, mode="edge"), np.ones(9) / 9, "valid")
    _fill(canvas, np.concatenate([np.stack([0.5 - half, y], 1), np.stack([0.5 + half, y], 1)[::-1]]), 1)
    inside = canvas > 0
    for part in range(2, int(rng.integers(2, 5))):
        canvas[int(rng.uniform(0.15, 0.9) * UNIT) :] = part
    return canvas * inside


def compound(rng: Rng) -> Parts:
    """Draw two to five connected blobs and polygons, each a part."""
    canvas = _canvas()
    centre = np.array([0.5, 0.5])
    for part in range(1, int(rng.integers(3, 7))):
        outline = ring(rng, 0.4) if rng.random() < 0.7 else ring(rng, 0.3, int(rng.integers(3, 7)))
        stretch = np.array([rng.uniform(0.25, 0.7), rng.uniform(0.15, 0.6)])
        turn = rng.uniform(0, np.pi)
        spin = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        _fill(canvas, ((outline - 0.5) * stretch) @ spin.T + centre, part)
        centre = np.clip(centre + rng.normal(0, 0.17, 2), 0.2, 0.8)
    return canvas


def stroke(rng: Rng) -> Parts:
    """Draw a pole, branch or rope."""
    canvas = _canvas()
    path = np.cumsum(rng.normal(0, 0.05, (8, 2)) + np.array([0.0, 0.12]), 0)
    path[:, 0] += 0.5
    _limb(canvas, path, rng.uniform(0.02, 0.09), 1)
    if rng.random() < 0.4:
        at = int(rng.integers(2, 6))
        _limb(canvas, np.stack([path[at], path[at] + rng.uniform(-0.35, 0.35, 2)]), rng.uniform(0.015, 0.05), 1)
    return canvas


def cloud(rng: Rng) -> Parts:
    """Draw an irregular patch: the largest component of thresholded smooth noise."""
    noise = cv2.resize(rng.normal(0, 1, (7, 7)).astype(np.float32), (UNIT, UNIT), interpolation=cv2.INTER_CUBIC)
    noise = noise + 0.4 * cv2.resize(
        rng.normal(0, 1, (24, 24)).astype(np.float32), (UNIT, UNIT), interpolation=cv2.INTER_CUBIC
    )
    y, x = np.mgrid[-1 : 1 : UNIT * 1j, -1 : 1 : UNIT * 1j]
    level = (noise - 2.2 * (x**2 + y**2) + 0.8 > 0).astype(np.uint8)
    count, pieces, stats, _ = cv2.connectedComponentsWithStats(level)
    if count < 2:
        return blob(rng)
    largest: Parts = (pieces == 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())).astype(np.uint8)
    return largest


DRAWERS: tuple[Callable[[Rng], Parts], ...] = (
    blob, blob, polygon, house, creature, creature, person, person, tree, vehicle, vessel, compound, compound, stroke,
    cloud,
)  # fmt: skip


def placed(rng: Rng, parts: Parts, side: int, *, size: float, centre_xy: tuple[float, float], rough: float) -> Parts:
    """Place `parts` on a (side, side) canvas, mirrored, rotated and stretched at random; `size` is the share of the
    side that they span, `rough` the displacement of their edge in pixels."""
    angle = rng.normal(0, 0.15) if rng.random() < 0.75 else rng.uniform(0, 2 * np.pi)
    scale = UNIT / (size * side)
    stretch = np.exp(rng.normal(0, 0.25))
    flip = -1.0 if rng.random() < 0.5 else 1.0
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], np.float32)
    matrix = np.diag([flip * scale * stretch, scale / stretch]).astype(np.float32) @ turn
    y, x = np.mgrid[0:side, 0:side].astype(np.float32)
    x -= np.float32(centre_xy[0] * side)
    y -= np.float32(centre_xy[1] * side)
    if rough > 0:
        for cells, strength in ((5, 6.0), (20, 1.5), (90, 0.8)):
            field = rng.normal(0, rough * strength / 2, (2, cells, cells)).astype(np.float32)
            x += cv2.resize(field[0], (side, side), interpolation=cv2.INTER_LINEAR)
            y += cv2.resize(field[1], (side, side), interpolation=cv2.INTER_LINEAR)
    map_x = matrix[0, 0] * x + matrix[0, 1] * y + np.float32(UNIT / 2)
    map_y = matrix[1, 0] * x + matrix[1, 1] * y + np.float32(UNIT / 2)
    return cv2.remap(parts, map_x, map_y, cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT).astype(np.uint8)
