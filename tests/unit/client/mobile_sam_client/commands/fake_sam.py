"""Fake service for command-line tests: it segments the given box, or two squares for everything.

With `multimask_output`, the candidates are the box without its first 0, 1 and 2 rows.
"""

import base64
import hashlib
import io
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from PIL import Image

from tests.unit.client.mobile_sam_client import fake_service as fake

SIZE = (60, 40)
SQUARES = ((0, 0, 20, 20), (30, 10, 40, 20))


def picture(seed: int, size: tuple[int, int] = SIZE, kind: str = "PNG", **options: Any) -> bytes:
    """Return an image file that depends on the seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return fake.file_of(Image.fromarray(pixels), kind, **options)


@dataclass
class FakeSam:
    """Fake service. `requests` records pairs of path and fields."""

    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=lambda: dict(fake.WEIGHTS))
    replies: dict[bytes, fake.Reply] = field(default_factory=dict)
    """Special replies per image file."""
    inset: int = 0
    """Pixels that are missing at each side of a box's mask."""
    ready: bool = True
    unreachable: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, Any] = field(default_factory=dict)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.unreachable:
            raise httpx.ConnectError("refused", request=request)
        path = request.url.path
        if path == "/info":
            return fake.json_reply({**fake.INFO, "weights": self.weights})(request)
        if path.startswith("/embed/"):
            return fake.json_reply(self.jobs[path.removeprefix("/embed/")])(request)
        fields = json.loads(request.content)
        if "images" in fields:
            return self._queue(fields, request)
        self.requests.append((path, fields))
        file = self.file_of(fields)
        replies = {
            "/embed": self._embed,
            "/mobile_sam": self._segment,
            "/everything": self._everything,
        }
        reply = (
            self.replies[file] if file in self.replies else replies[path](self._image(file), fields)
        )
        return reply(request)

    def file_of(self, fields: dict[str, Any]) -> bytes:
        """Return the image file of a request."""
        if "image_id" in fields:
            return self.files[fields["image_id"]]
        file = base64.b64decode(fields["input_image"])
        self.files[hashlib.sha256(file).hexdigest()] = file
        return file

    def _image(self, file: bytes) -> dict[str, Any]:
        with Image.open(io.BytesIO(file)) as image:
            width, height = image.size[:: -1 if image.getexif().get(0x0112, 1) >= 5 else 1]
        image_id = hashlib.sha256(file).hexdigest()
        return {
            **fake.IMAGE,
            "image_id": image_id,
            "width": width,
            "height": height,
            "weights": self.weights,
        }

    def _queue(self, fields: dict[str, Any], request: httpx.Request) -> httpx.Response:
        """Encode the only image at once."""
        fields = {"input_image": fields["images"][0]}
        self.requests.append(("/embed", fields))
        file = self.file_of(fields)
        answer = self.replies[file](request) if file in self.replies else None
        if answer is not None and answer.status_code not in {400, 413, 415, 422}:
            return answer
        image_id = hashlib.sha256(file).hexdigest()
        image = {"image_id": image_id, "state": "failed" if answer else "done"}
        self.jobs[image_id] = {"images": [image | ({"problem": answer.json()} if answer else {})]}
        return fake.make_reply(json.dumps({"job": image_id}).encode(), status=202)(request)

    def _embed(self, image: dict[str, Any], fields: dict[str, Any]) -> fake.Reply:
        return fake.json_reply(image)

    def _segment(self, image: dict[str, Any], fields: dict[str, Any]) -> fake.Reply:
        masks, rles, clipped = [], [], []
        for number, prompt in enumerate(fields["prompts"]):
            # Parts of a width, such as 4 / 60, come back as 3.9999999.
            given = [int(value + 1e-6) for value in prompt.get("box") or SQUARES[0]]
            limits = [image["width"], image["height"]] * 2
            x0, y0, x1, y1 = np.clip(given, 0, limits).tolist()
            if fields.get("clip") and given != [x0, y0, x1, y1]:
                clipped.append(f"prompts[{number}].box")
            sides = np.add([x0, y0, x1, y1], np.multiply(self.inset, [1, 1, -1, -1]))
            x0, y0, x1, y1 = np.clip(sides, 0, limits).tolist()
            for rank in range(3 if fields.get("multimask_output") else 1):
                mask, box = _square(image, (x0, y0 + rank, x1, y1)), [x0, y0 + rank, x1, y1]
                masks.append(
                    {**fake.mask_result(number, 0.75 - rank / 4, int(mask.sum())), "box": box}
                )
                rles.append(fake.rle(mask))
        mode = {"overlay": "RGB", "cutout": "RGBA"}.get(fields["segmented_image"])
        shown = fake.png(0, mode, (image["width"], image["height"])) if mode else None
        answer = {**image, "clipped": clipped} if clipped else image
        return fake.segment_reply(masks, rles, shown, **answer)

    def _everything(self, image: dict[str, Any], fields: dict[str, Any]) -> fake.Reply:
        found = [
            fake.record_of(_square(image, (x0, y0, x1, y1)), (x0, y0, x1 - x0, y1 - y0))
            for x0, y0, x1, y1 in SQUARES
        ]
        return fake.lines_reply(
            {"done": 1, "total": 2}, {"done": 2, "total": 2, "result": {**image, "masks": found}}
        )


def _square(image: dict[str, Any], box: tuple[int, ...]) -> Any:
    mask = np.zeros((image["height"], image["width"]), bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    return mask
