"""The orchestrator: decodes the image, calls encoder and decoder, encodes the answer.

Nothing here but Triton's tensors and the order of the steps; the steps are in the `mobile_sam_*` modules beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import mobile_sam_images as images
import mobile_sam_masks as masks
import mobile_sam_pictures as pictures
import mobile_sam_prompts as prompts
import numpy as np
import numpy.typing as npt
import orjson
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from mobile_sam_problems import Rejected

Array = npt.NDArray[Any]

NO_MASK = (np.zeros((1, 1, 256, 256), np.float32), np.zeros(1, np.float32))
"""The decoder's `mask_input` and `has_mask_input` where there is no earlier mask."""


class TritonPythonModel:
    """One process of the orchestrator; it works on one request at a time."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the limits and which weights these are."""
        # Pillow warns of oddities in callers' files, which would be lines in the log.
        warnings.simplefilter("ignore")
        config = json.loads(args["model_config"])
        limit = (
            os.environ.get("MOBILE_SAM_MAX_IMAGE_PIXELS") or config["parameters"]["max_image_pixels"]["string_value"]
        )
        if not limit.isdecimal() or int(limit) == 0:
            raise pb_utils.TritonModelException(f"max_image_pixels: expected a positive whole number, got {limit!r}")
        self.max_pixels = int(limit)
        identity = Path(args["model_repository"]) / args["model_version"] / "weights.json"
        if not identity.is_file():
            raise pb_utils.TritonModelException(f"{identity}: no such file; `make weights` writes it")
        written = json.loads(identity.read_text())
        self.weights = {key: written[key] for key in ("name", "sha256", "trained", "note")}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; a failure of one does not touch the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            mask, picture, result = self._segment(request)
            parts = {"mask": mask, "picture": picture, "result": result, "problem": b""}
        except Rejected as rejected:
            parts = {"mask": b"", "picture": b"", "result": b"", "problem": rejected.encode()}
        except Exception as error:
            pb_utils.Logger.log_error(f"mobile_sam: {type(error).__name__}: {error}")
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor(name, np.array([data], np.object_)) for name, data in parts.items()]
        )

    def _segment(self, request: Any) -> tuple[bytes, bytes, bytes]:
        """The bodies of the parts `mask`, `segmented_image` and `result`."""
        data: bytes = read(request, "input_image")[0]
        points_xy, labels = read(request, "point_coords"), read(request, "point_labels")
        multimask = bool(read(request, "multimask_output")[0])
        mask_format: str = read(request, "mask_format")[0].decode()
        style: str = read(request, "segmented_image")[0].decode()

        opened = images.open_image(data, self.max_pixels)
        pixels = images.decode(opened)
        size_hw = (pixels.shape[0], pixels.shape[1])
        prompts.check_inside(points_xy, labels, size_hw)
        frame = images.to_frame(pixels)
        embedding = self._encode(frame)
        coords, decoder_labels = prompts.to_frame(points_xy, labels, size_hw, frame.size_hw)
        logits, scores = self._decode(embedding, coords, decoder_labels)

        # Token 0 answers a prompt with one mask; tokens 1 to 3 are candidates, wanted when a prompt is ambiguous.
        chosen = slice(1, 4) if multimask else slice(0, 1)
        scores = scores[0, chosen]
        found = [masks.upsample(low_res, frame.size_hw, size_hw) for low_res in logits[0, chosen]]
        best = found[int(scores.argmax())]
        return (
            masks.encode(np.stack(found) if multimask else best, mask_format),
            pictures.draw(pixels, [best], style),
            orjson.dumps(
                {
                    "image_id": hashlib.sha256(data).hexdigest(),
                    "width": size_hw[1],
                    "height": size_hw[0],
                    "weights": self.weights,
                    "masks": [describe(mask, float(score)) for mask, score in zip(found, scores, strict=True)],
                }
            ),
        )

    def _encode(self, frame: images.Frame) -> Array:
        """The image's embedding, (1, 256, 64, 64) float32."""
        inputs: dict[str, Array] = {"images": frame.pixels[None], "sizes_hw": np.array([frame.size_hw], np.int32)}
        return call("mobile_sam_encoder", inputs, ["image_embeddings"])[0]

    def _decode(self, embedding: Array, coords: Array, labels: Array) -> tuple[Array, Array]:
        """Logits (N, 4, 256, 256) and predicted IoU (N, 4), both float32, of N prompts on one image."""
        inputs: dict[str, Array] = {
            "image_embeddings": embedding,
            "point_coords": coords,
            "point_labels": labels,
            "mask_input": NO_MASK[0],
            "has_mask_input": NO_MASK[1],
        }
        logits, scores = call("mobile_sam_decoder", inputs, ["low_res_masks", "iou_predictions"])
        return logits, scores


def read(request: Any, name: str) -> Array:
    """An input tensor of the request."""
    array: Array = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
    return array


def call(model: str, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
    """Run another model of this Triton.

    Raises:
        TritonModelException: it answered with an error.
    """
    response = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=outputs,
        inputs=[pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in inputs.items()],
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
    ).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
    return [pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in outputs]


def describe(mask: masks.Mask, score: float) -> dict[str, Any]:
    """What `result` says of a mask: predicted IoU, area in pixels, box_xyxy."""
    area, box = masks.area_and_box(mask)
    return {"score": round(score, 4), "area": area, "box": box}
