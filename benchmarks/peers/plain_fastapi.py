"""FastAPI with ONNX Runtime: takes JSON, returns the mask as PNG or JSON. `segment` runs in FastAPI's thread pool."""

from __future__ import annotations

import base64
import io
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Body, FastAPI, HTTPException, Response
from PIL import Image, UnidentifiedImageError

from examples.bentoml_runner.predictor import Decoder, Encoder, check_points, to_frame

app = FastAPI()
encoder, decoder = Encoder(), Decoder()


@app.get("/readyz")
def ready() -> str:
    """Report that the server has started; the models are loaded on import."""
    return "ready"


@app.post("/mobile_sam", response_model=None)
def segment(
    input_image: Annotated[str, Body()],
    pos_coords: Annotated[list[list[float]], Body()],
    mask_format: Annotated[Literal["json", "png"], Body()] = "json",
) -> Response | dict[str, Any]:
    """Segment the object at these clicks; return its mask."""
    try:
        image = Image.open(io.BytesIO(base64.b64decode(input_image)))
        labels = [1] * len(pos_coords)
        check_points(image.size, pos_coords, labels)
        frame = to_frame(image)
    except (ValueError, UnidentifiedImageError) as error:
        raise HTTPException(422, str(error)) from None
    mask = decoder.mask(encoder.encode([frame]), image.size, pos_coords, labels)
    if mask_format == "json":
        return {"mask": mask.tolist()}
    file = io.BytesIO()
    Image.fromarray(mask * np.uint8(255)).convert("1").save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")
