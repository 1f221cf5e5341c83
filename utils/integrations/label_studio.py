"""Label Studio: the protocol of its machine learning backends.

Tested with Label Studio 1.23.2; `label_studio/ml/api_connector.py` is the other side. Label Studio
shows only the status and URL of an error, and its page shows no error of a click. So `/predict`
answers errors with status 200, which reach the callers of Label Studio's API, and `/setup`
redirects to a URL that has the sentence.
"""

import asyncio
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import JSONResponse, RedirectResponse, Response

from utils.api.answers import problem_of, problem_response
from utils.api.request_body import MAX_VALUES, has_more_than, validated
from utils.api.requests import MAX_OBJECTS
from utils.errors import Problem, invalid
from utils.integrations.adapter import MAX_TEXT_CHARS, Adapter, ToolCall, ToolRequest
from utils.integrations.advice import in_tools_words
from utils.integrations.fetch import MAX_URL_CHARS
from utils.integrations.label_studio_bodies import without_numbers
from utils.integrations.label_studio_config import MAX_CONFIG_CHARS, Control, LabelConfig, regions
from utils.integrations.label_studio_images import Work, task_images
from utils.integrations.rasters import POLYGON_NS
from utils.integrations.service import GRID, Document

BASE = "/label-studio"
MODEL_VERSION = "mobile-sam"
MAX_QUOTES = 4 * MAX_VALUES
"""Quotation marks of a body from which numbers are removed: names and texts of `MAX_VALUES`
members."""
SETUP_ERROR = JSONResponse(
    {"error": "the model cannot be used with this project: see the query of the URL"}, 422
)
"""Page at the URL to which `/setup` redirects with an error in the query."""
IGNORED = ("webhook", "train", "validate", "duplicate_model", "delete", "job_status")
"""Notices and training requests; accepted and ignored."""
RESERVED_S = 5.0
"""Part of the inference timeout that a batch leaves for its answer."""

Size = Annotated[int, Field(ge=1, le=100_000)]


class Region(ToolRequest):
    """A region that a person has drawn."""

    type: str = ""
    value: dict[str, Any] = Field(default={})
    to_name: str = ""
    original_width: Size = 1
    original_height: Size = 1
    image_rotation: float = 0
    is_positive: bool = True

    @property
    def label(self) -> str | None:
        """The first label."""
        names = self.value.get(self.type.removesuffix("labels") + "labels") or self.value.get(
            "labels"
        )
        name = names[0] if isinstance(names, list) and names else None
        return name if isinstance(name, str) and len(name) <= MAX_TEXT_CHARS else None

    def pixels(self, *names: str) -> list[float]:
        """Return members of the value, which are in percent of the image, in pixels."""
        width, height = self.original_width, self.original_height
        sides = {"x": width, "y": height, "width": width, "height": height}
        try:
            return [min(max(float(self.value[name]), 0), 100) * sides[name] / 100 for name in names]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise invalid(
                "value", f"numbers {', '.join(names)} in percent", "another value"
            ) from None

    def box(self) -> list[float]:
        """Return the rectangle, which must be upright, as [x0, y0, x1, y1] in pixels."""
        _check_upright("value.rotation", "a rectangle", self.value.get("rotation") or 0)
        x, y, width, height = self.pixels("x", "y", "width", "height")
        return [x, y, min(x + width, self.original_width), min(y + height, self.original_height)]


class Context(ToolRequest):
    """Regions that a person has drawn for one object."""

    result: list[Region] = Field(default=[], max_length=1000)


class LabelStudioParams(ToolRequest):
    """Parameters of a request."""

    context: Context | None = None


class Task(ToolRequest):
    """A task."""

    id: int = 0
    data: dict[str, Any] = Field(default={})
    annotations: list[Any] = Field(default=[])

    def image(self, key: str) -> str:
        """Return the image, as a URL, a path of Label Studio, or a `data:` URL."""
        text = self.data.get(key)
        if not isinstance(text, str):
            raise invalid(f"data.{key}", "the URL of an image", "none")
        if len(text) > MAX_URL_CHARS and not text.startswith("data:"):
            raise invalid(
                f"data.{key}", f"a URL of at most {MAX_URL_CHARS} characters", f"{len(text)}"
            )
        return text

    def boxes(self) -> Iterator[Region]:
        """Yield the rectangles of the newest annotation that has any."""
        for annotation in reversed(self.annotations):
            results = annotation.get("result") if isinstance(annotation, dict) else None
            if not isinstance(results, list):
                continue
            members = [member for member in results if isinstance(member, dict)]
            rectangles = [box for box in members if box.get("type") == "rectanglelabels"]
            if rectangles:
                for box in rectangles[:MAX_OBJECTS]:
                    yield validated(Region, box)
                return


ConfigText = Annotated[str, Field(max_length=MAX_CONFIG_CHARS)]


class LabelStudioPredict(ToolRequest):
    """Body of `/predict`."""

    tasks: Annotated[list[Task], Field(min_length=1, max_length=10_000)]
    label_config: ConfigText
    params: LabelStudioParams = LabelStudioParams()

    @classmethod
    def shortened(cls, body: bytes) -> bytes:
        """Return the body without brush masks and polygons, if it has too many values."""
        if has_more_than(MAX_VALUES, b",[{", body) and not has_more_than(MAX_QUOTES, b'"', body):
            return without_numbers(body)
        return body


class LabelStudioSetup(ToolRequest):
    """Body of `/setup`. The token in it is not used: by default Label Studio itself does not
    take it.
    """

    label_config: Annotated[ConfigText, Field(alias="schema")] = ""


async def setup(call: ToolCall, request: LabelStudioSetup) -> dict[str, Any]:
    """Check a project's labeling configuration, and that its images can be fetched."""
    config = await asyncio.to_thread(LabelConfig.parse, request.label_config)
    if not any(image in control.targets for control in config.controls for image in config.images):
        config.output(next(iter(config.images)), "Object")
    if not call.service.settings.image_origins:
        task_images(call.service.settings).check()
    return {"model_version": MODEL_VERSION}


def _setup_error(problem: Problem) -> Response:
    words = re.findall(r"[\w.,:;/=-]+", problem.detail, re.ASCII)
    return RedirectResponse(f"error?{'-'.join(words)}", 303)


async def predict(call: ToolCall, request: LabelStudioPredict) -> dict[str, Any]:
    """Return the regions of a click, or the predictions of tasks."""
    config = await asyncio.to_thread(LabelConfig.parse, request.label_config)
    if request.params.context is None:
        return await _batch(call, config, request.tasks)
    return {
        "results": [
            await _interactive(call, config, request.tasks[0], request.params.context.result)
        ]
    }


def _predict_error(problem: Problem) -> Response:
    """Return an error as one result with the status that Label Studio passes on.

    Where it has sent several tasks, Label Studio then sends one after another.
    """
    result = {"result": [], "score": 0, "model_version": MODEL_VERSION, "error": problem.detail}
    return JSONResponse({"results": [result], "error": problem.detail})


async def _interactive(
    call: ToolCall, config: LabelConfig, task: Task, drawn: list[Region]
) -> dict[str, Any]:
    prompts = [
        region
        for region in drawn
        if "x" in region.value and region.type.startswith(("keypoint", "rectangle"))
    ]
    if not prompts:
        raise invalid(
            "context.result",
            "a keypoint or a rectangle, drawn with a tag that has smart=true",
            "neither",
        )
    image = _image_of(config, prompts)
    label = next((region.label for region in reversed(prompts) if region.label), None)
    control = config.output(image, label)
    fields: dict[str, Any] = {"pos_coords": [], "neg_coords": []}
    for region in prompts:
        if region.type.startswith("rectangle"):
            fields["box"] = region.box()
        else:
            fields["pos_coords" if region.is_positive else "neg_coords"].append(
                region.pixels("x", "y")
            )
    fields = {"prompts": [fields], **config.mask_format([control])}
    document = await _on_image(
        call, task, config.images[image], partial(call.service.segment, fields=fields)
    )
    _check_size(document, prompts)
    return await _prediction(call, document, image, [(control, label or control.first_label)])


async def _batch(call: ToolCall, config: LabelConfig, tasks: list[Task]) -> dict[str, Any]:
    """Return the prediction of each task.

    An empty list stands for none, so that Label Studio asks for it again: it would keep an empty
    prediction.
    """
    deadline = time.monotonic() + call.service.timeout_s() - RESERVED_S
    results: list[Any] = []
    errors = {}
    for task in tasks:
        results.append([])
        try:
            if (left_s := deadline - time.monotonic()) > 0:
                results[-1] = await asyncio.wait_for(
                    _task(call, config, task, alone=len(tasks) == 1), left_s
                )
        except asyncio.TimeoutError:
            continue
        except Exception as error:
            problem = problem_of(error)
            problem_response(problem)
            errors = {"error": f"task {task.id}: {in_tools_words(problem).detail}"}
    return {"results": results, **errors}


async def _task(
    call: ToolCall, config: LabelConfig, task: Task, *, alone: bool
) -> dict[str, Any] | list[Any]:
    """Return the object in each box of a task.

    Without boxes, return everything in its image if there is a tag for that; or else only encode
    the image: Label Studio also asks for predictions when a person opens a task, and the first
    click comes next. One of several tasks is not open, and its image is queued.
    """
    boxes = list(task.boxes())
    image = _image_of(config, boxes)
    key = config.images[image]
    if boxes:
        controls = [config.output(image, box.label) for box in boxes]
        outputs = [
            (control, box.label or control.first_label)
            for control, box in zip(controls, boxes, strict=True)
        ]
        fields: dict[str, Any] = {"prompts": [{"box": box.box()} for box in boxes]}
        fields |= config.mask_format(controls)
        document = await _on_image(call, task, key, partial(call.service.segment, fields=fields))
        _check_size(document, boxes)
    elif control := config.everything(image):
        document = await _on_image(call, task, key, partial(call.service.everything, fields=GRID))
        outputs = [(control, control.first_label)] * len(document["masks"])
    else:
        await _on_image(
            call, task, key, call.service.embed if alone else call.service.embed_in_background
        )
        return []
    return await _prediction(call, document, image, outputs)


def _image_of(config: LabelConfig, drawn: Sequence[Region]) -> str:
    """Return the name of the image, which must be upright, on which regions were drawn: by default,
    the first one of the configuration.
    """
    first = next(iter(config.images))
    names = {region.to_name if region.to_name in config.images else first for region in drawn}
    if len(names) > 1:
        raise invalid("to_name", "regions of one image", f"those of {', '.join(sorted(names))}")
    for region in drawn:
        _check_upright("image_rotation", "an image", region.image_rotation)
    return names.pop() if names else first


def _check_upright(name: str, what: str, degrees: Any) -> None:
    try:
        turned = float(degrees) % 360
    except (TypeError, ValueError, OverflowError):
        turned = math.nan
    if turned:
        raise invalid(name, f"{what} that is not rotated", f"{turned:g} degrees")


def _check_size(document: Document, drawn: Sequence[Region]) -> None:
    """Check that regions, which are in percent, were drawn on an image of the answer's size."""
    size = f"{document['width']} x {document['height']}"
    for region in drawn:
        drawn_on = f"{region.original_width} x {region.original_height}"
        if drawn_on != size:
            raise invalid("original_width", f"the size of the image, {size}", drawn_on)


async def _on_image(call: ToolCall, task: Task, key: str, work: Work) -> dict[str, Any]:
    """Return the document of some work on the image that a task has under a key."""
    return await task_images(call.service.settings).answer(task.id, task.image(key), work)


async def _prediction(
    call: ToolCall, document: Document, image: str, outputs: Iterable[tuple[Control, str]]
) -> dict[str, Any]:
    """Return the regions of all masks of an answer of `/mobile_sam` or `/everything`."""
    output = iter(outputs)
    shapes = await call.service.converted(
        document, lambda mask: regions(mask, image, *next(output), document), box_ns=POLYGON_NS
    )
    scores = [mask["score"] for mask in document["masks"] if mask["area"]]
    return {
        "result": shapes,
        "score": sum(scores) / max(len(scores), 1),
        "model_version": MODEL_VERSION,
    }


ADAPTER = Adapter(
    "label-studio",
    pages={
        f"{BASE}/health": {"status": "UP", "model_class": "MobileSAM"},
        f"{BASE}/versions": {"versions": [MODEL_VERSION]},
        f"{BASE}/error": SETUP_ERROR,
    },
    work={
        f"{BASE}/setup": (LabelStudioSetup, setup),
        f"{BASE}/predict": (LabelStudioPredict, predict),
        **{f"{BASE}/{path}": {} for path in IGNORED},
    },
    error_response=lambda problem: JSONResponse(
        {"error": problem.detail}, problem.status, problem.headers
    ),
    error_responses={f"{BASE}/setup": _setup_error, f"{BASE}/predict": _predict_error},
    pages_need_key=True,
)
