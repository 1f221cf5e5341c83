"""Maps computed from prompts and the learned embedding, without further weights: likeness to clicked spots, cheapest
paths from them, and soft colour models of box and mask."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mobile_sam_onnx.builtin.layout import (
    BLOB_SIGMAS,
    COSTS,
    FAR,
    HEAD_WIDTH,
    HEADS,
    KERNEL_WIDTH,
    KERNELS,
    ROUNDS,
    SIDE,
    SOURCES,
    SPOT_SIGMA,
)  # fmt: skip


def path_costs(start: Tensor, costs: Tensor) -> Tensor:
    """Return the cost of the cheapest path from the seeds to every cell: (B, K, COSTS, S, S).

    `start` (B, K, S, S) is 0 at seeds and FAR elsewhere; `costs` (B, 2 * COSTS, S, S) are those of entering a cell from
    the left, then from above. A pass along a row is exact: with s the running sum of costs, the cheapest path from the
    left is cummin(d - s) + s.
    """
    across = torch.cumsum(costs[:, None, :COSTS], -1)
    down = torch.cumsum(costs[:, None, COSTS:], -2)
    reach = start[:, :, None].expand(-1, -1, COSTS, -1, -1)
    for _ in range(ROUNDS):
        for total, axis in ((across, -1), (down, -2)):
            forward = torch.cummin(reach - total, axis).values + total
            backward = torch.flip(torch.cummin(torch.flip(reach + total, [axis]), axis).values, [axis]) - total
            reach = torch.minimum(forward, backward)
    return reach


def kernel_matrices(kernels: Tensor, valid: Tensor) -> Tensor:
    """Return the similarity of 32 x 32 cells to 16 x 16 larger ones, (B, KERNELS, 1024, 256); rows sum to 1."""
    batch = kernels.shape[0]
    queries = kernels.reshape(batch, KERNELS, KERNEL_WIDTH, 1024)
    keys = nn.functional.avg_pool2d(kernels, 2).reshape(batch, KERNELS, KERNEL_WIDTH, 256)
    present = nn.functional.max_pool2d(valid, 4).reshape(batch, 1, 1, 256)
    product = torch.matmul(queries.transpose(2, 3), keys)
    distance = (keys**2).sum(2)[:, :, None] - 2 * product  # the query's own square cancels in the softmax
    return torch.softmax(-distance - 1e4 * (1 - present), -1)


def _nearest(distance: Tensor, chosen: Tensor) -> Tensor:
    """Return the minimum of `distance` (B, K, P, ...) over the `chosen` points (B, K, P); at least FAR without any."""
    shape = chosen.shape + (1,) * (distance.dim() - 3)
    return (distance + FAR * 100 * (1 - chosen.reshape(shape))).amin(2)


class Prompts(NamedTuple):
    """K prompts for each of B pictures: `points` (B, K, P, 2), x then y in the 1024 frame; SAM's `labels` (B, K, P),
    ignored below 0; earlier probabilities `mask` (B, K, 64, 64); `has_mask` (B, K), 0 or 1."""

    points: Tensor
    labels: Tensor
    mask: Tensor
    has_mask: Tensor


def conditions(maps: dict[str, Tensor], kernels: Tensor, prompt: Prompts) -> Tensor:
    """Return the conditioned maps, (B, K, CONDITIONS, 64, 64); `kernels` is the result of `kernel_matrices`."""
    points, labels, mask, has_mask = prompt
    batch, prompts = points.shape[:2]
    valid = maps["valid"][:, :, None]  # (B, 1, 1, 64, 64)
    positive, negative = (labels == 1).to(points.dtype), (labels == 0).to(points.dtype)
    cells = torch.arange(SIDE, dtype=points.dtype, device=points.device)
    spot = torch.clamp((points + 0.5) / 16 - 0.5, 0, SIDE - 1)  # cell units
    away_x = (cells - spot[..., :1]) ** 2  # (B, K, P, 64)
    away_y = (cells - spot[..., 1:]) ** 2
    away = away_y[..., :, None] + away_x[..., None, :]  # (B, K, P, 64, 64) squared cells

    weight = torch.exp(-away / (2 * SPOT_SIGMA**2)) * valid
    weight = weight / (weight.sum((-1, -2), keepdim=True) + 1e-6)
    likeness = maps["likeness"].reshape(batch, HEADS, HEAD_WIDTH, SIDE * SIDE)
    flat = likeness.reshape(batch, 1, HEADS * HEAD_WIDTH, SIDE * SIDE).transpose(2, 3)
    at_spot = torch.matmul(weight.reshape(batch, 1, -1, SIDE * SIDE), flat)  # (B, 1, K*P, H*W)
    at_spot = at_spot.reshape(batch, -1, HEADS, HEAD_WIDTH).transpose(1, 2)  # (B, H, K*P, W)
    unlike = (
        (likeness**2).sum(2)[:, :, None] - 2 * torch.matmul(at_spot, likeness) + (at_spot**2).sum(-1, keepdim=True)
    )  # (B, H, K*P, 4096)
    unlike = unlike.reshape(batch, HEADS, prompts, -1, SIDE, SIDE).permute(0, 2, 3, 1, 4, 5)
    like_positive = torch.exp(-_nearest(unlike, positive) / HEAD_WIDTH)
    like_negative = torch.exp(-_nearest(unlike, negative) / HEAD_WIDTH)

    first, second = (labels == 2).to(points.dtype), (labels == 3).to(points.dtype)
    corner0 = (spot * first[..., None]).sum(2)[..., None, None]  # (B, K, 2, 1, 1)
    corner1 = (spot * second[..., None]).sum(2)[..., None, None]
    has_box = second.amax(2)[..., None, None]
    column, row = cells[None, None, None], cells[None, None, :, None]
    margin_x = torch.minimum(column - corner0[:, :, 0], corner1[:, :, 0] - column)  # (B, K, 1, 64)
    margin_y = torch.minimum(row - corner0[:, :, 1], corner1[:, :, 1] - row)  # (B, K, 64, 1)
    margin = torch.minimum(margin_x, margin_y)
    inside = torch.clamp(margin + 0.5, 0, 1) * has_box
    outside = (margin < -1).to(points.dtype) * has_box

    seed_positive = FAR * (_nearest(away, positive) > 0.51).to(points.dtype)
    seed_negative = FAR * (_nearest(away, negative) > 0.51).to(points.dtype) * (1 - outside)
    reach = path_costs(torch.cat([seed_positive, seed_negative], 1), maps["costs"])
    reach_positive, reach_negative = reach[:, :prompts], reach[:, prompts:]
    near_positive, near_negative = torch.exp(-reach_positive), torch.exp(-reach_negative)
    contest = torch.sigmoid(reach_negative - reach_positive)

    sources = torch.stack([inside, mask, near_positive[:, :, 1], near_negative[:, :, 1]], 2)  # (B, K, 4, 64, 64)
    small = nn.functional.avg_pool2d(sources.flatten(0, 1), 4).reshape(batch, 1, prompts * SOURCES, 256)
    spread = torch.matmul(small, kernels.transpose(2, 3))  # (B, KERNELS, K*4, 1024)
    spread = spread.reshape(batch, KERNELS, prompts, SOURCES, 32, 32).permute(0, 2, 3, 1, 4, 5)
    spread = spread.reshape(batch * prompts, SOURCES * KERNELS, 32, 32)
    spread = nn.functional.interpolate(spread, scale_factor=2.0, mode="nearest")
    spread = spread.reshape(batch, prompts, SOURCES * KERNELS, SIDE, SIDE)

    squared = [_nearest(away, positive), _nearest(away, negative)]
    blobs = [torch.exp(-d / (2 * sigma**2)) for d in squared for sigma in BLOB_SIGMAS]
    ones = torch.ones_like(inside)
    plain = [*blobs, inside, outside, torch.tanh(margin / 8) * has_box, ones * has_box]
    plain += [mask, ones * has_mask[..., None, None], ones * valid[:, :, 0]]
    return torch.cat(
        [like_positive, like_negative, near_positive, near_negative, contest, spread, torch.stack(plain, 2)], 2
    )
