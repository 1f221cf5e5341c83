"""Masks as polygons: outer rings and holes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Ring = npt.NDArray[np.int32]
"""(N, 2) int32 corners, x then y, with whole numbers at pixel edges; the last corner is joined to the first."""


def polygons(mask: Mask, tolerance: float) -> list[list[Ring]]:
    """Return a mask as polygons, each a list of rings: the outer one first, then its holes.

    Pixels that touch at a corner belong to one polygon.

    Args:
        mask: (H, W) bool.
        tolerance: largest distance of a ring from the mask's edge, in pixels; 0 for the exact edge.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected a number of pixels of at least 0, got {tolerance!r}")
    found: dict[int, list[Ring]] = {}
    for ring, outer in _rings(mask):
        found.setdefault(outer, []).append(_simplified(ring, tolerance))
    return list(found.values())


def joined(rings: Sequence[Ring]) -> Ring:
    """Return rings as one ring: lines without width join each to the nearest point of those before it."""
    path, *others = rings
    for ring in others:
        distances = ((path[:, np.newaxis] - ring) ** 2).sum(axis=2)
        at, first = divmod(int(distances.argmin()), len(ring))
        path = np.concatenate([path[: at + 1], ring[first:], ring[: first + 1], path[at:]])
    return path


def _rings(mask: Mask) -> list[tuple[Ring, int]]:
    """Return each ring, and the index of the outer ring that it belongs to; an outer ring comes before its holes.

    Rings are clockwise around the mask and counter-clockwise around holes.
    """
    padded = np.pad(mask, 1)
    above, below = padded[:-1], padded[1:]
    left_above, right_above, left_below, right_below = above[:, :-1], above[:, 1:], below[:, :-1], below[:, 1:]
    turns = left_above ^ right_above ^ left_below ^ right_below
    # Two pixels that touch at a corner: the edge turns there twice, keeping the pixels in one ring.
    crossings = (left_above == right_below) & (right_above == left_below) & (left_above != right_above)
    turn_y, turn_x = np.nonzero(turns)
    cross_y, cross_x = np.nonzero(crossings)
    falling = left_above[crossings]
    y, x = (np.concatenate(parts) for parts in ((turn_y, cross_y, cross_y), (turn_x, cross_x, cross_x)))
    # A corner has one horizontal and one vertical edge: to the east or west, and to the south or north.
    east = np.concatenate([(right_above != right_below)[turns], np.ones_like(falling), np.zeros_like(falling)])
    south = np.concatenate([(left_below != right_below)[turns], ~falling, falling])
    order = np.lexsort((east, x, y))
    x, y, south = x[order], y[order], south[order]
    # This order puts the ends of a horizontal edge side by side; column order does so for a vertical edge.
    down = np.lexsort((south, y, x))
    vertical = np.empty_like(down)
    vertical[down[::2]], vertical[down[1::2]] = down[1::2], down[::2]
    tops = x[down[::2]] * len(padded) + y[down[::2]]
    corners, next_corner = np.stack([x, y], axis=1).astype(np.int32), vertical.tolist()
    ring_of = [-1] * len(corners)
    found: list[tuple[Ring, int]] = []
    for first in range(0, len(corners), 2):
        if ring_of[first] >= 0:
            continue
        path, at = [], first
        while ring_of[at] < 0:
            ring_of[at] = ring_of[at ^ 1] = len(found)
            path += [at, at ^ 1]
            at = next_corner[at ^ 1]
        column, row = (int(value) for value in corners[first])
        outer = len(found)
        if not right_below[row, column]:
            # A hole: the mask's pixels to its left end at an edge of the outer ring, or of a hole found before.
            to_left = mask[row, :column][::-1]
            edge = column - (column if to_left.all() else int(to_left.argmin()))
            above_left = down[2 * (int(np.searchsorted(tops, edge * len(padded) + row, "right")) - 1)]
            outer, path = found[ring_of[above_left]][1], path[::-1]
        found.append((corners[path], outer))
    return found


def _simplified(ring: Ring, tolerance: float) -> Ring:
    """Return the corners, at least three, that Ramer, Douglas and Peucker's algorithm keeps."""
    if not tolerance:
        return ring
    closed = np.concatenate([ring, ring[:1]]).astype(np.float64)
    farthest = int(np.square(closed - closed[0]).sum(axis=1).argmax())
    anchors = sorted({0, farthest, int(_distances(closed, closed[0], closed[farthest]).argmax())})
    kept, pending = set(anchors), [*zip(anchors, [*anchors[1:], len(ring)], strict=True)]
    while pending:
        start, end = pending.pop()
        if end - start > 1:
            distances = _distances(closed[start + 1 : end], closed[start], closed[end])
            index = int(distances.argmax())
            if distances[index] > tolerance:
                middle = start + 1 + index
                kept.add(middle)
                pending += [(start, middle), (middle, end)]
    return ring[sorted(kept)]


def _distances(
    points: npt.NDArray[np.float64], start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the distances of points (N, 2) from the line between two points (2,)."""
    line, offsets = end - start, points - start
    along = np.clip(offsets @ line / max(float(line @ line), 1e-9), 0, 1)
    away = offsets - along[:, np.newaxis] * line
    distances: npt.NDArray[np.float64] = np.hypot(away[:, 0], away[:, 1])
    return distances
