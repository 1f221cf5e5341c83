"""Official predictor behind FastAPI: takes JSON, returns the mask as PNG, keeps the last image's embedding."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import threading
from typing import Annotated

import numpy as np
from fastapi import Body, FastAPI, HTTPException, Response
from PIL import Image, UnidentifiedImageError

from benchmarks.peers.official import load

app = FastAPI()
predictor = load(os.environ["OFFICIAL_CHECKPOINT"])
lock = threading.Lock()
shown: str | None = None
"""SHA-256 of the image whose embedding the predictor holds; guarded by `lock`."""


@app.get("/readyz")
def ready() -> str:
    """Report that the server has started; the model is loaded on import."""
    return "ready"


@app.post("/mobile_sam")
def segment(
    pos_coords: Annotated[list[tuple[float, float]], Body()],
    input_image: Annotated[str | None, Body()] = None,
    image_id: Annotated[str | None, Body()] = None,
) -> Response:
    """Segment the object at these points of a base64 image, or of the last image by its id; return a PNG."""
    global shown  # noqa: PLW0603
    picture, digest = None, image_id
    if input_image is not None:
        try:
            file = base64.b64decode(input_image)
            picture, digest = np.asarray(Image.open(io.BytesIO(file)).convert("RGB")), hashlib.sha256(file).hexdigest()
        except (ValueError, UnidentifiedImageError) as error:
            raise HTTPException(422, str(error)) from None
    with lock:
        if digest is None or digest != shown:
            if picture is None:
                raise HTTPException(404, "the predictor holds another image: send the image again")
            predictor.set_image(picture)
            shown = digest
        masks, _, _ = predictor.predict(
            point_coords=np.array(pos_coords), point_labels=np.ones(len(pos_coords), int), multimask_output=False
        )
    answer = io.BytesIO()
    Image.fromarray(masks[0]).save(answer, "PNG")
    return Response(answer.getvalue(), media_type="image/png")
