"""Images above the pixel limit in every adapter: as from a service without the limit, in pixels
of the image.
"""

import asyncio
import base64
import io
import json
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client._scaling import Scaling
from tests.http.asgi import Http
from tests.unit.utils.integrations.pipeline_segmenter import RADIUS, PipelineSegmenter
from tests.unit.utils.integrations.test_label_studio import CONFIG, decoded_brush, drawn
from utils.errors import RejectedByModel
from utils.inference.request import ImageSource
from utils.integrations import ADAPTERS
from utils.integrations.adapter import Adapters
from utils.integrations.cvat import DETECTOR, IN_BROWSER, INTERACTOR
from utils.integrations.service import GRID, MaskService
from utils.settings import Settings

HEIGHT, WIDTH = 401, 603
UNLIMITED = 10**7
LIMITS = {"half": 62_000, "quarter": 15_600}
CLICK, BOX = [250, 170], [150, 100, 375, 300]
RADIUS_PIXELS = RADIUS * WIDTH / 256
SETTINGS = Settings(
    label_studio_url="http://localhost:8080", label_studio_api_key="token", cvat_in_browser=True
)


def photo(
    file_format: str = "JPEG", height: int = HEIGHT, width: int = WIDTH, **options: Any
) -> bytes:
    x, y = np.linspace(0, 255, width), np.linspace(0, 255, height)[:, None]
    pixels = np.stack([x + 0 * y, 0 * x + y, (x + y) / 2], axis=2).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, file_format, **options)
    return file.getvalue()


class Tools(Http):
    """All adapters, with the orchestrator's work behind them."""

    def __init__(
        self, folder: Any, max_pixels: int, settings: Settings = SETTINGS, **options: Any
    ) -> None:
        self.segmenter = PipelineSegmenter(folder, max_pixels, **options)
        self.service = MaskService(self.segmenter, settings, background=self)  # type: ignore[arg-type]
        self.queued: list[ImageSource] = []
        super().__init__(Adapters(ADAPTERS, self.service))

    async def add(self, images: list[ImageSource]) -> dict[str, Any]:
        """Queue images."""
        self.queued += images
        return {"images": [{"image_id": "id", "state": "queued"} for _ in images]}

    def ask(self, path: str, body: dict[str, Any], **headers: str) -> Any:
        answer = self.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return (
            answer
            if answer.headers["content-type"] == "application/octet-stream"
            else answer.json()
        )


def filled(rings: list[Any], *, centres: bool = False) -> np.ndarray:
    """Return the mask of polygons, each a list of rings, whose points are at edges or centres of
    pixels.
    """
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    fine = 16
    for shape in rings:
        points = [
            np.rint((np.array(ring, float) - (0 if centres else 0.5)) * fine).astype(np.int32)
            for ring in shape
        ]
        one: np.ndarray = np.zeros_like(mask)
        cv2.fillPoly(one, points, (1,), shift=4)
        mask |= one
    return mask.astype(bool)


def brush(value: dict[str, Any]) -> np.ndarray:
    return decoded_brush(bytes(value["rle"])).reshape(HEIGHT, WIDTH, 4)[..., 0] > 0


def in_box(pixels: Any, left: int, top: int, right: int, bottom: int) -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    shape = bottom - top + 1, right - left + 1
    mask[top : bottom + 1, left : right + 1] = np.reshape(pixels, shape) > 0
    return mask


def of_runs(points: list[int]) -> np.ndarray:
    *runs, left, top, right, bottom = points
    pixels = np.repeat(np.arange(len(runs)) % 2, runs)
    return in_box(pixels, left, top, right, bottom)


def x_anylabeling(task: str) -> Any:
    marks = [] if task == "everything" else [{"type": "point", "data": CLICK, "label": 1}]

    def ask(tools: Tools, file: str) -> list[np.ndarray]:
        params = {"marks": marks, "current_task": task}
        answer = tools.ask("/v1/predict", {"model": "mobile_sam", "image": file, "params": params})
        assert answer["success"], answer
        return [filled([[shape["points"]]]) for shape in answer["data"]["shapes"]]

    return ask


def samapi(**fields: Any) -> Any:
    def ask(tools: Tools, file: str) -> list[np.ndarray]:
        path = "/sam/" if fields else "/sam/automask/"
        options = fields or {"points_per_side": 3, "include_image_edge": True}
        features = tools.ask(path, {"b64img": file, **options})
        return [filled([feature["geometry"]["coordinates"]]) for feature in features]

    return ask


def label_studio(tag: str) -> Any:
    config = CONFIG.replace("BrushLabels", tag)
    if tag == "RectangleLabels":
        config = config.replace('name="brush"', 'name="other"')

    def ask(tools: Tools, file: str) -> list[np.ndarray]:
        size = {"original_width": WIDTH, "original_height": HEIGHT}
        click = drawn(x=100 * CLICK[0] / WIDTH, y=100 * CLICK[1] / HEIGHT) | size
        body = {
            "tasks": [{"data": {"img": f"data:image/jpeg;base64,{file}"}}],
            "label_config": config,
            "params": {"context": {"result": [click]}},
        }
        (result,) = tools.ask("/label-studio/predict", body)["results"]
        masks = []
        for region in result["result"]:
            value = region["value"]
            assert (region["original_width"], region["original_height"]) == (WIDTH, HEIGHT)
            if "rle" in value:
                masks.append(brush(value))
            elif "points" in value:
                masks.append(filled([[np.array(value["points"]) * [WIDTH, HEIGHT] / 100]]))
            else:
                box = np.array(
                    [
                        value["x"],
                        value["y"],
                        value["x"] + value["width"],
                        value["y"] + value["height"],
                    ]
                )
                x0, y0, x1, y1 = box * [WIDTH, HEIGHT, WIDTH, HEIGHT] / 100
                masks.append(filled([[[[x0, y0], [x1, y0], [x1, y1], [x0, y1]]]]))
        return masks

    return ask


def roboflow(form: str, *, prompted: bool = True) -> Any:
    prompts = [
        {"points": [{"x": CLICK[0], "y": CLICK[1]}]},
        {"box": {"x": 300, "y": 200, "width": 225, "height": 200}},
    ]

    def ask(tools: Tools, file: str) -> list[np.ndarray]:
        body: dict[str, Any] = {"image": {"type": "base64", "value": file}, "format": form}
        answer = tools.ask("/sam2/segment_image", body | ({"prompts": prompts} if prompted else {}))
        if form == "binary":
            masks = np.load(io.BytesIO(answer.content))["masks"]
            return [*(masks > 0)]
        shapes = [prediction["masks"] for prediction in answer["predictions"]]
        if form == "rle":
            assert all(shape["size"] == [HEIGHT, WIDTH] for shape in shapes)
            return [
                coco.decode({**shape, "counts": shape["counts"].encode()}) > 0 for shape in shapes
            ]
        return [filled([[ring] for ring in shape], centres=True) for shape in shapes]

    return ask


def cvat(function: str, **fields: Any) -> Any:
    def ask(tools: Tools, file: str) -> list[np.ndarray]:
        answer = tools.ask(
            "/api/function_invocations",
            {"image": file, **fields},
            **{"x-nuclio-function-name": function},
        )
        if function == DETECTOR:
            outlines = [
                filled([[np.reshape(each["points"], (-1, 2))]], centres=True) for each in answer
            ]
            return [in_box(each["mask"][:-4], *each["mask"][-4:]) for each in answer] + outlines
        (shape,) = answer["shapes"]
        return [in_box(answer["mask"], *answer["bounds"]), of_runs(shape["points"])]

    return ask


FORMS = {
    "x-anylabeling polygon": x_anylabeling("polygon"),
    "x-anylabeling rectangle": x_anylabeling("rectangle"),
    "x-anylabeling everything": x_anylabeling("everything"),
    "samapi": samapi(point_coords=[CLICK], point_labels=[1]),
    "samapi, a box beyond the image": samapi(bbox=[-5, -5, WIDTH + 7, HEIGHT + 3]),
    "samapi everything": samapi(),
    "label studio brush": label_studio("BrushLabels"),
    "label studio polygon": label_studio("PolygonLabels"),
    "label studio rectangle": label_studio("RectangleLabels"),
    "roboflow polygon": roboflow("json"),
    "roboflow rle": roboflow("rle"),
    "roboflow binary": roboflow("binary"),
    "roboflow everything": roboflow("rle", prompted=False),
    "cvat points": cvat(INTERACTOR, pos_points=[CLICK], neg_points=[]),
    "cvat box": cvat(INTERACTOR, obj_bbox=[BOX[:2], BOX[2:]]),
    "cvat everything": cvat(DETECTOR),
}


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    monkeypatch.setitem(GRID, "points_per_side", 3)


def iou(mask: np.ndarray, other: np.ndarray) -> float:
    return float((mask & other).sum() / (mask | other).sum())


@pytest.mark.parametrize("size", LIMITS)
@pytest.mark.parametrize("form", FORMS)
def test_masks_are_those_of_a_service_without_the_limit(tmp_path, form, size):
    file = base64.b64encode(photo()).decode()
    wanted = FORMS[form](Tools(tmp_path / "whole", UNLIMITED), file)
    limited = Tools(tmp_path / "limited", LIMITS[size])
    found = FORMS[form](limited, file)
    assert len(found) == len(wanted) > 0
    # Discs with a radius of 141 pixels in a grid of cells of 2 or 4 pixels.
    assert min(map(iou, found, wanted)) > (0.985 if size == "half" else 0.975)
    again = FORMS[form](limited, file)
    assert all(map(np.array_equal, found, again))
    uncached = FORMS[form](Tools(tmp_path / "none", LIMITS[size], cache_bytes=0), file)
    assert all(map(np.array_equal, found, uncached))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
@pytest.mark.parametrize("size_hw", [(1203, 1801), (1800, 1200)])
def test_mask_is_that_of_an_image_scaled_by_the_client(tmp_path, file_format, size_hw):
    file = photo(file_format, *size_hw)
    limited = Tools(tmp_path / "limited", 10**6)
    found = rle_of_click(limited, file, (700, 500))
    scaling = Scaling.of_file(file, 1200)
    assert scaling
    ((x, y),) = scaling.fields_to_send({"pos_coords": [(700, 500)]})["pos_coords"]
    smaller = rle_of_click(Tools(tmp_path / "whole", UNLIMITED), scaling.scaled_file(file), (x, y))
    # The client shows the nearest pixels of the smaller mask.
    rows, columns = (
        ((np.arange(large) + 0.5) * sent / large).astype(int)
        for large, sent in zip(size_hw, smaller.shape, strict=True)
    )
    assert found.shape == size_hw
    assert iou(found, smaller[rows][:, columns]) > 0.99


def rle_of_click(tools: Tools, file: bytes, click_xy: tuple[float, float]) -> np.ndarray:
    image = {"type": "base64", "value": base64.b64encode(file).decode()}
    prompt = {"points": [{"x": click_xy[0], "y": click_xy[1]}]}
    answer = tools.ask(
        "/sam2/segment_image", {"image": image, "prompts": [prompt], "format": "rle"}
    )
    rle = answer["predictions"][0]["masks"]
    mask: np.ndarray = coco.decode({**rle, "counts": rle["counts"].encode()}) > 0
    return mask


def test_size_area_and_boxes_are_those_of_the_image(tmp_path):
    image, answers = ImageSource(photo(), None), []
    for max_pixels in (UNLIMITED, LIMITS["half"]):
        service = Tools(tmp_path / str(max_pixels), max_pixels).service
        fields = {"prompts": [{"pos_coords": [CLICK]}, {"box": BOX}], "mask_format": "rle"}
        document = asyncio.run(service.segment(image, fields))
        grid = asyncio.run(service.everything(image, {"points_per_side": 3, "crop_n_layers": 1}))
        assert (
            (grid["width"], grid["height"])
            == (document["width"], document["height"])
            == (WIDTH, HEIGHT)
        )
        answers.append([*document["masks"], *grid["masks"]])
    whole, limited = answers
    assert len(whole) == len(limited) > 10
    for mask in whole:  # masks of equal scores have no fixed order
        distances = [np.abs(np.subtract(mask["box"], other["box"])).max() for other in limited]
        nearest = limited.pop(int(np.argmin(distances)))
        assert min(distances) <= 4
        assert nearest["area"] == pytest.approx(mask["area"], rel=0.02)


def test_smallest_areas_are_in_pixels_of_the_image(tmp_path):
    """The hole of the disc has 4,000 pixels."""
    service = Tools(tmp_path, LIMITS["quarter"]).service
    areas = []
    for min_area in (0, 3000, 5000):
        fields = {"pos_coords": [CLICK], "mask_format": "rle", "min_mask_region_area": min_area}
        document = asyncio.run(service.segment(ImageSource(photo(), None), fields))
        areas.append(document["masks"][0]["area"])
    assert areas[0] == areas[1]
    assert areas[2] - areas[0] == pytest.approx(np.pi * (RADIUS_PIXELS / 4) ** 2, rel=0.05)


def test_embedding_for_the_browser_is_that_of_the_image(tmp_path):
    blobs = []
    for max_pixels in (UNLIMITED, *LIMITS.values()):
        tools = Tools(tmp_path / str(max_pixels), max_pixels)
        body = {"image": base64.b64encode(photo()).decode(), "pos_points": [CLICK]}
        answer = tools.ask(
            "/api/function_invocations", body, **{"x-nuclio-function-name": IN_BROWSER}
        )
        blobs.append(np.frombuffer(base64.b64decode(answer["blob"]), "<f4"))
    for blob in blobs[1:]:
        assert blob.std() > 10
        assert np.abs(blob - blobs[0]).mean() < 1


def test_image_of_an_adapter_stays_too_large_for_the_service_itself(tmp_path):
    tools = Tools(tmp_path, LIMITS["half"])
    image = ImageSource(photo(), None)
    image_id = asyncio.run(tools.service.embed(image))["image_id"]
    assert tools.segmenter.sources == ["encoded"]
    for asked in (image, ImageSource(None, image_id)):
        with pytest.raises(RejectedByModel, match=r"at most 62000 pixels .the client's max_side"):
            asyncio.run(tools.segmenter.embed(asked))
    asyncio.run(tools.service.embed(ImageSource(None, image_id)))
    assert tools.segmenter.sources == ["encoded", "found"]


def test_images_of_several_tasks_are_queued_and_encoded_as_they_are(tmp_path):
    tools = Tools(tmp_path, LIMITS["half"])
    task = {"data": {"img": f"data:image/jpeg;base64,{base64.b64encode(photo()).decode()}"}}
    tools.ask("/label-studio/predict", {"tasks": [task, task], "label_config": CONFIG})
    assert [image.scale_down for image in tools.queued] == [True, True]
    image = tools.queued[0]
    kept = json.loads(asyncio.run(tools.segmenter.embed(image, background=True)))
    assert tools.segmenter.sources == []
    # As the queue asks for the image later (`utils.background.encoder`).
    by_id = ImageSource(None, kept["image_id"], image.owner, scale_down=True)
    assert json.loads(asyncio.run(tools.segmenter.embed(by_id, background=True)))["reduction"] == 2
    assert tools.segmenter.sources == ["encoded"]
