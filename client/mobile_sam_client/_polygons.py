"""Masks as polygons: outer rings and holes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mobile_sam_client._arrays import BoolMask

Ring = npt.NDArray[np.int32]
"""(N, 2) int32 corners, x then y, with whole numbers at pixel edges; the last corner is joined to
the first."""


def polygons(mask: BoolMask, tolerance: float) -> list[list[Ring]]:
    """Return a mask as polygons, each a list of rings: the outer one first, then its holes.

    Pixels that touch at a corner belong to one polygon.

    Args:
        mask: (H, W) bool.
        tolerance: largest distance of a ring from the mask's edge, in pixels; 0 for the exact edge.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected a number of pixels of at least 0, got {tolerance!r}")
    rings_by_outer: dict[int, list[Ring]] = {}
    for ring, outer in _rings(mask):
        rings_by_outer.setdefault(outer, []).append(_simplified(ring, tolerance))
    return list(rings_by_outer.values())


def joined(rings: Sequence[Ring]) -> Ring:
    """Return rings as one ring.

    Lines without width join each to the nearest point of those before it.
    """
    path, *others = rings
    for ring in others:
        distances = ((path[:, np.newaxis] - ring) ** 2).sum(axis=2)
        at, first = divmod(int(distances.argmin()), len(ring))
        # To the ring at its nearest point, around it, and back.
        path = np.concatenate([path[: at + 1], ring[first:], ring[: first + 1], path[at:]])
    return path


def _rings(mask: BoolMask) -> list[tuple[Ring, int]]:
    """Return each ring, and the index of its outer ring; an outer ring comes before its holes.

    Rings are clockwise around the mask and counter-clockwise around holes.
    """
    padded = np.pad(mask, 1)
    left_above, right_above = padded[:-1, :-1], padded[:-1, 1:]
    left_below, right_below = padded[1:, :-1], padded[1:, 1:]
    turns = left_above ^ right_above ^ left_below ^ right_below
    # Two pixels that touch at a corner: the edge turns there twice, keeping the pixels in one ring.
    touches = (left_above == right_below) & (right_above == left_below)
    crossings = touches & (left_above != right_above)
    turn_y, turn_x = np.nonzero(turns)
    cross_y, cross_x = np.nonzero(crossings)
    falling = left_above[crossings]
    y = np.concatenate([turn_y, cross_y, cross_y])
    x = np.concatenate([turn_x, cross_x, cross_x])
    # A corner has one horizontal and one vertical edge: to the east or west, to the south or north.
    turns_east = (right_above != right_below)[turns]
    turns_south = (left_below != right_below)[turns]
    east = np.concatenate([turns_east, np.ones_like(falling), np.zeros_like(falling)])
    south = np.concatenate([turns_south, ~falling, falling])
    order = np.lexsort((east, x, y))
    x, y, south = x[order], y[order], south[order]
    # This order puts the ends of a horizontal edge side by side: `corner ^ 1` is the other end.
    # Column order does so for a vertical edge.
    down = np.lexsort((south, y, x))
    upper_ends, lower_ends = down[::2], down[1::2]
    vertical = np.empty_like(down)
    vertical[upper_ends] = lower_ends
    vertical[lower_ends] = upper_ends
    next_corner = vertical.tolist()
    tops = x[upper_ends] * len(padded) + y[upper_ends]
    corners = np.stack([x, y], axis=1).astype(np.int32)
    ring_of_corner = [-1] * len(corners)
    rings: list[tuple[Ring, int]] = []
    for first in range(0, len(corners), 2):
        if ring_of_corner[first] >= 0:
            continue
        path = []
        at = first
        while ring_of_corner[at] < 0:
            ring_of_corner[at] = ring_of_corner[at ^ 1] = len(rings)
            path += [at, at ^ 1]
            at = next_corner[at ^ 1]
        column, row = (int(value) for value in corners[first])
        outer = len(rings)
        if not right_below[row, column]:
            # A hole: the mask's pixels to its left end at an edge of the outer ring, or of an
            # earlier hole.
            to_left = mask[row, :column][::-1]
            edge_column = 0 if to_left.all() else column - int(to_left.argmin())
            position = int(np.searchsorted(tops, edge_column * len(padded) + row, "right")) - 1
            above_left = upper_ends[position]
            _, outer = rings[ring_of_corner[above_left]]
            path.reverse()
        rings.append((corners[path], outer))
    return rings


def _simplified(ring: Ring, tolerance: float) -> Ring:
    """Return the corners, at least three, that Ramer, Douglas and Peucker's algorithm keeps."""
    if not tolerance:
        return ring
    closed = np.concatenate([ring, ring[:1]]).astype(np.float64)
    farthest = int(np.square(closed - closed[0]).sum(axis=1).argmax())
    third = int(_distances(closed, closed[0], closed[farthest]).argmax())
    anchors = sorted({0, farthest, third})
    corners = set(anchors)
    pending = list(zip(anchors, [*anchors[1:], len(ring)], strict=True))
    while pending:
        start, end = pending.pop()
        if end - start <= 1:
            continue
        distances = _distances(closed[start + 1 : end], closed[start], closed[end])
        index = int(distances.argmax())
        if distances[index] > tolerance:
            middle = start + 1 + index
            corners.add(middle)
            pending += [(start, middle), (middle, end)]
    return ring[sorted(corners)]


def _distances(
    points: npt.NDArray[np.float64], start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the distances of points (N, 2) from the line between two points (2,)."""
    line = end - start
    offsets = points - start
    along = np.clip(offsets @ line / max(float(line @ line), 1e-9), 0, 1)
    away = offsets - along[:, np.newaxis] * line
    distances: npt.NDArray[np.float64] = np.hypot(away[:, 0], away[:, 1])
    return distances
