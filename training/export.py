"""Export of a checkpoint as built-in weights: `python -m training.export --checkpoint last.pt`.

With `--compare` it also builds the ONNX graphs and prints the differences between PyTorch and ONNX Runtime.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from mobile_sam_onnx.builtin import WEIGHTS, build_decoder, build_encoder, load_weights
from mobile_sam_onnx.builtin.layout import FRAME, MASK_CLAMP
from training.conditioning import Prompts
from training.encoder import pack
from training.rounds import Segmenter


def export(checkpoint: Path, out: Path, raw: bool = False) -> None:
    """Write the averaged (or, `raw`, the last) weights of `checkpoint` to `out` as float16."""
    kept = torch.load(checkpoint, weights_only=True)
    state: dict[str, Tensor] = kept["model" if raw else "average"]
    half = {name: value.to(torch.float16).contiguous() for name, value in state.items()}
    if not all(torch.isfinite(value).all() for value in half.values()):
        raise ValueError(f"{checkpoint} holds values beyond float16's range")
    save_file(half, out, metadata={"steps": str(kept["step"])})


def torch_answers(
    model: Segmenter, image: NDArray[np.uint8], size_hw: tuple[int, int], prompt: Prompts
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the embedding, masks (N, 4, 256, 256) and scores (N, 4) that the graphs should produce."""
    pixels = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
    inside = torch.zeros(1, 1, 1024, 1024)
    inside[..., : size_hw[0], : size_hw[1]] = 1
    valid = nn.functional.avg_pool2d(inside, 4)
    rgb = nn.functional.avg_pool2d(pixels * inside, 4) / valid.clamp(min=1e-6) / 255
    maps = model.encoder(rgb, valid)
    logits, scores = model.decoder(maps, prompt)
    given, fresh = (prompt.labels[0] >= 0).sum(1), prompt.has_mask[0] == 0
    lone_click = (given == 1) & ((prompt.labels[0] == 1).sum(1) == 1) & fresh
    lone_box = (given == 2) & ((prompt.labels[0] >= 2).sum(1) == 2) & fresh
    ranked = torch.where(lone_box[:, None], scores * agreement(logits, prompt), scores)
    best = ranked.argmax(1) * (lone_click | lone_box)
    rows = torch.arange(len(best))
    logits[:, 0], scores[:, 0] = logits[rows, best], scores[rows, best]
    logits = nn.functional.interpolate(logits, scale_factor=2.0, mode="bilinear", align_corners=False)
    return pack(maps), logits, scores


def agreement(logits: Tensor, prompt: Prompts) -> Tensor:
    """Return the IoU of each mask's box with the prompt's box, (N, 4); meaningless for prompts without a box."""
    step = FRAME / logits.shape[-1]
    found = torch.zeros(logits.shape[:2])
    for row, masks in enumerate(logits > 0):
        x0, y0 = prompt.points[0, row][prompt.labels[0, row] == 2].sum(0)
        x1, y1 = prompt.points[0, row][prompt.labels[0, row] == 3].sum(0)
        for column, mask in enumerate(masks):
            if mask.any():
                rows, columns = torch.nonzero(mask, as_tuple=True)
                left, top, right, bottom = (
                    value * step for value in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
                )
                shared = (torch.minimum(right, x1) - torch.maximum(left, x0)).clamp(min=0)
                shared = shared * (torch.minimum(bottom, y1) - torch.maximum(top, y0)).clamp(min=0)
                both = (right - left) * (bottom - top) + (x1 - x0) * (y1 - y0)
                found[row, column] = shared / (both - shared)
    return found


@torch.no_grad()
def compare(weights: Path) -> dict[str, float]:
    """Return the largest differences between PyTorch and ONNX Runtime on a random picture and prompts."""
    rng = np.random.default_rng(0)
    state = load_weights(weights)
    model = Segmenter()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    coarse = torch.from_numpy(rng.uniform(0, 255, (1, 3, 24, 24)).astype(np.float32))
    image = nn.functional.interpolate(coarse, 1024, mode="bilinear")[0].permute(1, 2, 0).numpy().astype(np.uint8)
    size_hw = (697, 1022)
    points = rng.uniform(50, 600, (6, 4, 2)).astype(np.float32)
    labels = np.array(
        [[1, -1, -2, -2], [1, 0, 1, -1], [2, 3, -2, -2], [0, 2, 3, 1], [1, 1, 0, 0], [2, 3, -2, -2]], np.float32
    )
    points[3, 2], points[[2, 5], 1] = points[3, 1] + 150, points[[2, 5], 0] + 250
    mask = rng.normal(0, 4, (6, 1, 256, 256)).astype(np.float32)
    earlier = torch.sigmoid(nn.functional.avg_pool2d(torch.from_numpy(mask).clamp(-MASK_CLAMP, MASK_CLAMP), 4))
    earlier[[0, 5]] = 0
    given = (torch.from_numpy(points), torch.from_numpy(labels), earlier[:, 0], torch.tensor([0.0, 1, 1, 1, 1, 0]))
    wanted = torch_answers(model, image, size_hw, Prompts(*(value[None] for value in given)))
    encoder, decoder = (
        onnxruntime.InferenceSession(build(state).SerializeToString(), providers=["CPUExecutionProvider"])
        for build in (build_encoder, build_decoder)
    )
    sizes = np.array([size_hw], np.int32)
    embedding = encoder.run(None, {"images": image[None], "sizes_hw": sizes})[0]
    feed = {
        "point_coords": points,
        "point_labels": labels,
        "mask_input": mask,
        "has_mask_input": np.array([0, 1, 1, 1, 1, 0], np.float32),
    }
    masks, scores = decoder.run(["low_res_masks", "iou_predictions"], {"image_embeddings": embedding, **feed})
    found = (embedding.reshape(wanted[0].shape), masks, scores)
    return {
        name: float(np.abs(w.numpy() - f).max())
        for name, w, f in zip(("image_embeddings", "low_res_masks", "iou_predictions"), wanted, found, strict=True)
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint to export")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="file to write")
    parser.add_argument("--raw", action="store_true", help="the last weights instead of their running average")
    parser.add_argument("--compare", action="store_true", help="compare PyTorch and ONNX Runtime")
    arguments = parser.parse_args()
    export(arguments.checkpoint, arguments.out, arguments.raw)
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.2f} MB")
    if arguments.compare:
        for name, difference in compare(arguments.out).items():
            print(f"{name}: largest difference {difference:.2e}")


if __name__ == "__main__":
    main()
