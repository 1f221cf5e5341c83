"""Fake service with queued replies, and builders for the real service's answers."""

import asyncio
import base64
import hashlib
import inspect
import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import numpy as np
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client import AsyncClient, Client

URL = "http://127.0.0.1:3000"
WEIGHTS: dict[str, Any] = {"name": "none", "sha256": "0" * 64, "trained": True, "note": "A note."}
IMAGE: dict[str, Any] = {
    "image_id": "the id",
    "width": 6,
    "height": 4,
    "orientation": 1,
    "weights": WEIGHTS,
    "engine": {"encoder": "an encoder", "decoder": "a decoder"},
    "model_version": 3,
}
DESCRIPTOR: dict[str, Any] = {"resize": "longest_side", "prompts": ["points", "boxes", "masks"]}
INFO: dict[str, Any] = {
    "version": "1.2.3",
    "weights": WEIGHTS,
    "engine": IMAGE["engine"],
    "key_needed": True,
    "local_decoding": True,
    "limits": {"max_body_bytes": 1000, "max_image_pixels": 2000, "max_objects": 3},
    "model_versions": [1, 3],
    "loaded": [
        {
            "version": version,
            "weights": WEIGHTS,
            "engine": IMAGE["engine"],
            "descriptor": DESCRIPTOR,
        }
        for version in (1, 3)
    ],
    "encode_s": 0.4,
}
FILE = b"the bytes of a file"

Reply = Callable[[httpx.Request], httpx.Response]


class FakeService:
    """Returns the queued replies in order, the last one repeatedly; or `default_reply` if there
    are none.
    """

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        replies = self.replies or [default_reply]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return reply(request)

    @property
    def fields(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests if request.content]

    @property
    def images(self) -> list[str | bytes]:
        """Image of each request: its id or the bytes of its file."""
        return [
            fields.get("image_id") or base64.b64decode(fields["input_image"])
            for fields in self.fields
        ]

    def reply_with(self, *replies: Reply) -> None:
        self.replies += replies


class Awaited:
    """`AsyncClient` with blocking calls."""

    def __init__(self, client: AsyncClient) -> None:
        self.client, self.loop = client, asyncio.new_event_loop()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.client, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *arguments, **named: self.loop.run_until_complete(value(*arguments, **named))

    def close(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def make_client(
    kind: type[Client] | type[AsyncClient], handler: Reply, url: str = URL, **settings: Any
) -> Any:
    """Create a client of either kind with blocking calls, whose requests must name their image
    in a header.
    """

    def checked(request: httpx.Request) -> httpx.Response:
        assert request.headers.get("X-Image-Id") == named_image(request)
        return handler(request)

    client = kind(url, transport=httpx.MockTransport(checked), **settings)
    return Awaited(client) if isinstance(client, AsyncClient) else client


def named_image(request: httpx.Request) -> str | None:
    """Return the id of the image in a request, or in its path."""
    folder, _, name = request.url.path.rpartition("/")
    if folder == "/embeddings":
        return name
    fields = json.loads(request.content or b"{}")
    texts = fields.get("images", [fields["input_image"]] if "input_image" in fields else [])
    return fields.get("image_id") or next(
        (hashlib.sha256(base64.b64decode(text)).hexdigest() for text in texts), None
    )


def make_reply(
    content: bytes, content_type: str = "application/json", status: int = 200, **headers: str
) -> Reply:
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    headers = {"Content-Type": content_type, "X-Request-ID": "the-request", **extra}
    return lambda _: httpx.Response(status, content=content, headers=headers)


def json_reply(document: Any) -> Reply:
    return make_reply(json.dumps(document).encode())


def problem_reply(
    status: int, slug: str = "some", detail: str = "not now", **headers: str
) -> Reply:
    document = {"type": f"urn:mobile-sam:{slug}", "title": "No", "status": status, "detail": detail}
    return make_reply(json.dumps(document).encode(), "application/problem+json", status, **headers)


def failing_reply(error: type[httpx.TransportError], text: str = "") -> Reply:
    def reply(request: httpx.Request) -> httpx.Response:
        raise error(text, request=request)

    return reply


def rle(mask: Any) -> dict[str, Any]:
    encoded = coco.encode(np.asfortranarray(mask, np.uint8))
    return {"size": list(encoded["size"]), "counts": encoded["counts"].decode()}


def mask_with_area(number: int) -> Any:
    """Return a mask of `number` pixels, (4, 6) bool."""
    mask = np.zeros((4, 6), bool)
    mask.ravel()[:number] = True
    return mask


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def rotated_90() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def png(colour: int = 0, mode: str = "RGB", size: tuple[int, int] = (6, 4)) -> bytes:
    return file_of(Image.new(mode, size, colour))


def low_res_mask(fill: float = 0.5) -> str:
    file = io.BytesIO()
    np.save(file, np.full((256, 256), fill, np.float32))
    return base64.b64encode(file.getvalue()).decode()


def mask_result(number: int, score: float = 0.5, area: int = 3) -> dict[str, Any]:
    """Return the entry of a mask in `result`."""
    return {"object": number, "score": score, "area": area, "box": [0, 0, 3, 1]}


def multipart(parts: Iterable[tuple[str, bytes]]) -> bytes:
    head = b'--the-boundary\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    return b"".join(
        [*(head % (name.encode(), data) for name, data in parts), b"--the-boundary--\r\n"]
    )


def segment_reply(
    masks: Any = None, rles: Any = None, picture: bytes | None = None, **image: Any
) -> Reply:
    """Reply of /mobile_sam: by default one mask of three pixels, and masks of the areas in their
    results.
    """
    if rles is None:
        rles = (
            [rle(mask_with_area(mask["area"])) for mask in masks]
            if masks
            else rle(mask_with_area(3))
        )
    masks = masks or [mask_result(0)]
    parts = [("mask", json.dumps(rles).encode())]
    parts += [] if picture is None else [("segmented_image", picture)]
    parts += [("result", json.dumps({**IMAGE, **image, "masks": masks}).encode())]
    return make_reply(multipart(parts), "multipart/form-data; boundary=the-boundary")


def record_of(mask: Any, bbox_xywh: tuple[int, int, int, int]) -> dict[str, Any]:
    """Return a record of /everything for a mask, (H, W) bool."""
    return {
        "segmentation": rle(mask),
        "area": int(np.count_nonzero(mask)),
        "bbox": bbox_xywh,
        "predicted_iou": 0.9,
        "point_coords": [[bbox_xywh[0] + 1.5, bbox_xywh[1] + 0.5]],
        "stability_score": 0.8,
        "crop_box": [0, 0, *mask.shape[::-1]],
    }


def record(area: int) -> dict[str, Any]:
    return record_of(mask_with_area(area), (0, 0, area, 1))


def lines(*steps: Any) -> bytes:
    return b"".join(json.dumps(step).encode() + b"\n" for step in steps)


def final_line(*areas: int) -> dict[str, Any]:
    """Last line of /everything."""
    return {"done": 2, "total": 2, "result": {**IMAGE, "masks": [record(area) for area in areas]}}


def three_candidates() -> list[dict[str, Any]]:
    """Return results of three masks of an object, the second being the best, with logits that
    equal the score.
    """
    scored = ((0.5, 3), (0.9, 5), (0.7, 4))
    return [
        {**mask_result(0, score, area), "low_res_mask": low_res_mask(score)}
        for score, area in scored
    ]


def lines_reply(*steps: Any) -> Reply:
    """Reply of /everything."""
    return make_reply(lines(*steps), "application/x-ndjson")


def default_reply(request: httpx.Request) -> httpx.Response:
    replies = {
        "info": json_reply(INFO),
        "embed": json_reply(IMAGE),
        "mobile_sam": segment_reply(),
        "everything": lines_reply(final_line(2, 5)),
    }
    return replies[request.url.path.rpartition("/")[2]](request)


class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Body stream of chunks; raises those that are exceptions."""

    def __init__(self, chunks: Iterable[bytes | Exception]) -> None:
        self.chunks, self.closed = list(chunks), False

    def __iter__(self):
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def __aiter__(self):
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.close()
