"""BentoML service for an image classifier: POST /classify, run by an ensemble of three Triton
models.

make example NAME=classification
"""

from pathlib import Path
from typing import Any

import bentoml
import numpy as np
from bentoml.exceptions import InvalidArgument
from tritonclient.http import InferInput
from tritonclient.utils import InferenceServerException

from examples import embedded

triton_runner = embedded.runner(Path(__file__).with_name("model_repository"))
svc = bentoml.legacy.Service("classification", runners=[triton_runner])
embedded.prepare(svc)


@svc.api(input=bentoml.io.File(), output=bentoml.io.JSON())
async def classify(file: Any) -> list[dict[str, Any]]:
    """Return the five best classes of a PNG, JPEG or WebP file, `[{"label", "score"}, ...]`,
    best first.
    """
    # Triton batches along the first dimension: this is a batch of one, which Triton can merge with
    # others.
    image = InferInput("image", [1, 1], "BYTES")
    image.set_data_from_numpy(np.array([[file.read()]], np.object_))
    try:
        result = await triton_runner.infer(model_name="classification", inputs=[image])
    except InferenceServerException as error:
        if error.status() != "400":  # not the caller's fault
            raise
        raise InvalidArgument(error.message()) from None
    labels, scores = (result.as_numpy(name)[0].tolist() for name in ("labels", "scores"))
    return [
        {"label": label.decode(), "score": score}
        for label, score in zip(labels, scores, strict=True)
    ]
