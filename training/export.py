"""Export of a checkpoint as built-in weights: `python -m training.export --checkpoint last.pt`.

Then builds the ONNX graphs and prints the largest differences between PyTorch and ONNX Runtime.
"""

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mobile_sam_onnx.builtin import build_decoder, build_encoder
from mobile_sam_onnx.builtin.layout import MASK_CLAMP
from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.sources import BUILTIN
from training.conditioning import Prompts
from training.network import Segmenter, pack


def export(checkpoint: Path, out: Path) -> None:
    """Write the averaged weights of `checkpoint` to `out` as float16."""
    kept = torch.load(checkpoint, weights_only=True)
    state: dict[str, Tensor] = kept["average"]
    half = {name: value.to(torch.float16).contiguous() for name, value in state.items()}
    if not all(torch.isfinite(value).all() for value in half.values()):
        raise ValueError(f"{checkpoint} holds values beyond float16's range")
    save_file(half, out, metadata={"steps": str(kept["step"])})


@torch.no_grad()
def compare(weights: Path) -> dict[str, float]:
    """Return the largest differences between PyTorch and ONNX Runtime on a random picture and prompts.

    The prompts are several clicks, or clicks and a box, each with an earlier mask: for a lone click or box the graph
    picks one of its four masks, which the network leaves in order.
    """
    rng = np.random.default_rng(0)
    state = load_checkpoint(weights)
    model = Segmenter()
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()})
    coarse = torch.from_numpy(rng.uniform(0, 255, (1, 3, 24, 24)).astype(np.float32))
    image = nn.functional.interpolate(coarse, 1024, mode="bilinear")[0].permute(1, 2, 0).numpy().astype(np.uint8)
    height, width = 697, 1022
    points = rng.uniform(50, 600, (3, 4, 2)).astype(np.float32)
    points[1, 2] = points[1, 1] + 150
    labels = np.array([[1, 0, 1, -1], [0, 2, 3, 1], [1, 1, 0, 0]], np.float32)
    mask = rng.normal(0, 4, (3, 1, 256, 256)).astype(np.float32)

    inside = torch.zeros(1, 1, 1024, 1024)
    inside[..., :height, :width] = 1
    valid = nn.functional.avg_pool2d(inside, 4)
    pixels = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None] * inside
    maps = model.encoder(nn.functional.avg_pool2d(pixels, 4) / valid.clamp(min=1e-6) / 255, valid)
    earlier = torch.sigmoid(nn.functional.avg_pool2d(torch.from_numpy(mask).clamp(-MASK_CLAMP, MASK_CLAMP), 4))
    prompt = Prompts(
        torch.from_numpy(points)[None], torch.from_numpy(labels)[None], earlier.transpose(0, 1), torch.ones(1, 3)
    )
    logits, scores = model.decoder(maps, prompt)
    masks = nn.functional.interpolate(logits, scale_factor=2.0, mode="bilinear", align_corners=False)
    wanted = {"image_embeddings": pack(maps), "low_res_masks": masks, "iou_predictions": scores}

    encoder, decoder = (
        onnxruntime.InferenceSession(build(state).SerializeToString(), providers=["CPUExecutionProvider"])
        for build in (build_encoder, build_decoder)
    )
    (embedding,) = encoder.run(None, {"images": image[None], "sizes_hw": np.array([[height, width]], np.int32)})
    feed = {
        "point_coords": points,
        "point_labels": labels,
        "mask_input": mask,
        "has_mask_input": np.ones(3, np.float32),
    }
    answers = decoder.run(["low_res_masks", "iou_predictions"], {"image_embeddings": embedding, **feed})
    found = dict(zip(wanted, (embedding, *answers), strict=True))
    return {
        name: float(np.abs(value.numpy() - found[name].reshape(value.shape)).max()) for name, value in wanted.items()
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint to export")
    parser.add_argument("--out", type=Path, default=BUILTIN, help="file to write")
    given = parser.parse_args()
    export(given.checkpoint, given.out)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB")
    for name, difference in compare(given.out).items():
        print(f"{name}: largest difference {difference:.2e}")


if __name__ == "__main__":
    main()
