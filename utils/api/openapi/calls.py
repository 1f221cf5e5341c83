"""Example calls of the operations for `docs/http.md`. They run next to a copy of the sample named `photo.jpg`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from utils.api.openapi import photo

URL = "http://127.0.0.1:3000"


@dataclass(frozen=True)
class Call:
    """Example code and its output."""

    introduction: str
    """Sentence before the code; may be empty."""
    language: str
    code: str
    output: str = ""
    """JSON, or text shortened by …, that the code prints."""

    def markdown(self) -> str:
        """Return the call as fenced blocks."""
        blocks = [self.introduction, _fenced(self.language, self.code)]
        if self.output:
            blocks.append(_fenced("text" if "…" in self.output else "json", self.output))
        return "\n\n".join(block for block in blocks if block)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def _curl(options: str, path: str) -> str:
    """Return a shell command that sends a request and fails on an error response."""
    address = f"'{URL}{path}'" if "&" in path or "?" in path else f"{URL}{path}"
    return f"curl -sS --fail-with-body {options} \\\n  {address}"


def _form(fields: str = "") -> str:
    """Return the options of curl for a form with the photo, a click and further fields."""
    return f"""-F image=@photo.jpg -F 'request={{"pos_coords": [{photo.BALLOON}]{fields}}}'"""


FILE = "-H 'Content-Type: image/jpeg' --data-binary @photo.jpg"
PYTHON = f"""
import base64, json, urllib.request


def segment(**fields):
    headers = {{"Content-Type": "application/json", "Accept": "application/json"}}
    request = urllib.request.Request("{URL}/mobile_sam", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


image = base64.b64encode(open("photo.jpg", "rb").read()).decode()
sails = segment(input_image=image, pos_coords=[{photo.SAILS}], low_res_mask=True)
boat = segment(
    image_id=sails["image_id"],
    mask_input=sails["masks"][0]["low_res_mask"],
    pos_coords=[{photo.SAILS}, {photo.HULL}],
    neg_coords=[{photo.REFLECTION}],
    mask_format="png",
)
mask = boat["masks"][0]
open("mask.png", "wb").write(base64.b64decode(mask.pop("png")))
print(json.dumps(mask))
"""

CALLS: dict[str, tuple[Call, ...]] = {
    "mobile_sam": (
        Call(
            "A form with the image file, answered by one document:",
            "sh",
            _curl(f"-H 'Accept: application/json' {_form()}", "/mobile_sam"),
            output=photo.DOCUMENT,
        ),
        Call(
            "The image file as the body, answered by the mask alone:",
            "sh",
            _curl(f"-H 'Accept: image/png' {FILE} -o mask.png", "/mobile_sam?x={}&y={}".format(*photo.BALLOON)),
        ),
        Call(
            "Without `Accept`, all parts:",
            "sh",
            _curl(_form(', "mask_format": "rle"') + " -o response", "/mobile_sam"),
        ),
        Call(
            "JSON, in Python: the sails of a boat, then also the hull, but not its reflection:",
            "python",
            PYTHON,
            output=json.dumps(photo.BOAT),
        ),
    ),
    "embed": (Call("", "sh", _curl(FILE, "/embed"), output=photo.ENCODED),),
    "everything": (
        Call("", "sh", _curl(FILE, "/everything?points_per_side=8"), output=photo.EVERYTHING),
        Call(
            "With `progress`, as a stream of JSON lines:",
            "sh",
            _curl(f"-N {FILE}", "/everything?points_per_side=8&progress=true"),
            output=photo.PROGRESS,
        ),
    ),
    "info": (Call("", "sh", f"curl -sS --fail-with-body {URL}/info", output=photo.INFO),),
}
"""Calls by operation id; operations without one are lines of a list on the page."""
