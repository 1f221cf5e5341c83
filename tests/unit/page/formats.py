"""The page's formats, run in Deno, and projects for them."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pycocotools import mask as coco_mask

DENO = Path(sys.executable).with_name("deno")
SCRIPT = Path(__file__).with_name("run_formats.js")
TIMEOUT_S = 300


class FormatError(Exception):
    """A `FormatError` of the page: its message is for the user."""


def run(call: str, **given: Any) -> Any:
    """Return the result of a call of run_formats.js; a JavaScript error that is not a
    FormatError is an assertion.
    """
    command = [str(DENO), "run", "--quiet", "--no-lock", "--no-config", str(SCRIPT)]
    text = json.dumps({"call": call, **given})
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    if answer.get("type") == "FormatError":
        raise FormatError(answer["error"])
    assert "error" not in answer, answer
    return answer["result"]


def write(format: str, project: dict, **options: Any) -> dict[str, bytes]:  # noqa: A002
    """Return the files of a project by path."""
    files = run("write", format=format, project=project, options=options)
    return {file["path"]: base64.b64decode(file["content"]) for file in files}


def encoded(files: Mapping[str, bytes | str]) -> list[dict]:
    """Return files as run_formats.js takes them."""
    contents = {
        path: content if isinstance(content, bytes) else content.encode()
        for path, content in files.items()
    }
    return [
        {"path": path, "content": base64.b64encode(content).decode()}
        for path, content in contents.items()
    ]


def decoded_files(document: dict, names: Iterable[str]) -> dict[str, bytes]:
    """Return members of a document that are files in Base64."""
    return {name: base64.b64decode(document[name]) for name in names}


def read(
    files: Mapping[str, bytes | str], sizes: list[dict] | None = None
) -> tuple[dict, list[str]]:
    """Return the project in files, and the warnings."""
    result = run("read", files=encoded(files), sizes=sizes or [])
    return result["project"], result["warnings"]


def rle(mask: np.ndarray) -> dict:
    """Encode a mask, (H, W) bool, as COCO's compressed RLE."""
    found = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(found["size"]), "counts": found["counts"].decode()}


def decode(rle: dict) -> np.ndarray:
    """Return the mask, (H, W) bool, of COCO's compressed RLE."""
    return np.asarray(coco_mask.decode(rle), bool)


def masks_of(image: dict) -> list[np.ndarray]:
    return [decode(annotation["rle"]) for annotation in image["objects"]]


def iou(one: np.ndarray, other: np.ndarray) -> float:
    return float((one & other).sum() / max(1, (one | other).sum()))


def shapes(width: int, height: int) -> dict[str, np.ndarray]:
    """Return masks by what they have: holes, islands, single pixels, borders; (H, W) bool."""
    y, x = np.mgrid[:height, :width]
    disc = (x - width / 2) ** 2 + (y - height / 2) ** 2
    radius = min(width, height) / 3
    island = np.zeros((height, width), bool)
    masks = {
        name: island.copy()
        for name in ("islands", "single pixel", "pixels", "border", "line", "nested")
    }
    masks["islands"][5:40, 5:45] = masks["islands"][50:90, 60:110] = True
    masks["single pixel"][7, 9] = True
    masks["pixels"][0, 0] = masks["pixels"][-1, -1] = masks["pixels"][20, 30] = masks["pixels"][
        21, 31
    ] = True
    masks["border"][:, :9] = masks["border"][-5:] = masks["border"][:3, -4:] = True
    masks["line"][10, 4:30] = masks["line"][10:50, 29] = True
    masks["nested"][10:90, 10:90] = True
    masks["nested"][20:80, 20:80] = False
    masks["nested"][30:70, 30:70] = True
    masks["nested"][40:60, 40:60] = masks["nested"][32, 32] = masks["nested"][65:68, 33:36] = False
    noise = np.random.default_rng(3).random((height, width)) < 0.5
    return {
        "disc": disc < radius**2,
        "hole": (disc < radius**2) & (disc >= (radius / 2) ** 2),
        **masks,
        "whole image": ~island,
        "noise": noise & (y > 80) & (x > 120),
    }


CLASSES: list[dict] = [
    {"id": 1, "name": "traffic light", "color": "#ff0000"},
    {"id": 2, "name": "Äpfel & <Birnen> 'x' #1", "color": "#00ff7f"},
    {"id": 3, "name": "never: used", "color": "#0000ff"},
]
NAMES = ["my photo.jpg", "train/straße 1.png", "train/deep/空.v2.webp", "empty.png"]


def project_of(sizes: list[tuple[int, int]] | None = None) -> dict:
    """Return a project with every shape in each image but the last, which has no objects."""
    images = []
    for number, (name, (width, height)) in enumerate(
        zip(NAMES, sizes or [(160, 120), (201, 99), (333, 257), (20, 10)], strict=True)
    ):
        found = {} if name == "empty.png" else shapes(width, height)
        objects = [
            {
                "categoryId": 1 + (index + number) % 2,
                "name": f"{kind} {index}",
                "rle": rle(mask),
                "score": 0.5,
            }
            for index, (kind, mask) in enumerate(found.items())
        ]
        images.append({"name": name, "width": width, "height": height, "objects": objects})
    return {"classes": CLASSES, "images": images}


def sizes_of(project: dict) -> list[dict]:
    return [{key: image[key] for key in ("name", "width", "height")} for image in project["images"]]


def save(folder: Path, files: dict[str, bytes], project: dict, images: str) -> None:
    """Write files and black images to a folder."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    for image in project["images"]:
        path = folder / images / image["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (image["width"], image["height"])).save(path)
