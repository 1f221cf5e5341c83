"""Generated data sets of images with boxes."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

BOXES = 10
"""Boxes on each image."""
SIZE_WH = (640, 480)


def write_images(folder: Path, count: int, seed: int) -> None:
    """Write a COCO data set of generated images with random boxes."""
    random = np.random.default_rng(seed)
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    (folder / "images").mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 255, (6, 8, 3), np.uint8))
        picture = coarse.resize(SIZE_WH, Image.Resampling.BICUBIC)
        picture.save(folder / "images" / f"{number}.jpg")
        images.append({"id": number, "file_name": f"images/{number}.jpg"})
        for _ in range(BOXES):
            shares_xywh = random.uniform((0, 0, 0.1, 0.1), (0.6, 0.6, 0.4, 0.4))
            annotation = {
                "id": len(annotations),
                "image_id": number,
                "category_id": 1,
                "bbox": (shares_xywh * (SIZE_WH * 2)).tolist(),
            }
            annotations.append(annotation)
    document = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "object"}],
    }
    (folder / "boxes.json").write_text(json.dumps(document))
