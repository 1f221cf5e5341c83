"""Write expected.npz: the official predictor's answers to cases.json with the official weights.

    python -m tests.parity.make_expected mobile_sam.pt

Run it in the environment of `make env-peers`, which has the packaged official code.
"""

import sys

import numpy as np
from PIL import Image

from tests.parity.cases import (
    EXPECTED,
    Array,
    channel_statistics,
    packed,
    read_cases,
    sampled_embedding,
    sampled_logits,
)


def main(checkpoint: str) -> None:
    """Run the predictor on all cases and write the file."""
    from benchmarks.peers.official import load

    predictor = load(checkpoint)
    found: dict[str, Array] = {}
    best: dict[str, Array] = {}
    current = None
    for case in read_cases():
        if case.image != current:
            current = case.image
            predictor.set_image(np.asarray(Image.open(case.file).convert("RGB")))
            embedding = predictor.get_image_embedding().numpy()[0]
            found[f"embedding/{current}"] = sampled_embedding(embedding)
            found[f"channels/{current}"] = channel_statistics(embedding)
        masks, scores, low_res = predictor.predict(
            point_coords=np.array(case.points_xy, float) if case.points_xy else None,
            point_labels=np.array(case.labels) if case.labels else None,
            box=np.array(case.box_xyxy, float) if case.box_xyxy else None,
            mask_input=best[case.refines][None] if case.refines else None,
            multimask_output=case.multimask,
        )
        best[case.name] = low_res[scores.argmax()]
        found[f"logits/{case.name}"] = sampled_logits(low_res)
        found[f"low_res/{case.name}"] = packed(low_res > 0)
        found[f"mask/{case.name}"] = packed(masks)
        found[f"scores/{case.name}"] = scores.astype(np.float32)
    np.savez_compressed(EXPECTED, **found)
    print(f"{EXPECTED}: {len(found)} arrays, {EXPECTED.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
