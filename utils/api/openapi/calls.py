"""Example calls of each operation for `docs/http.md`. They run next to a copy of the sample named `photo.jpg`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from utils.api.openapi import examples, photo

URL = "http://127.0.0.1:3000"


@dataclass(frozen=True)
class Call:
    """Example code and its output."""

    introduction: str
    """Sentence before the code; may be empty."""
    language: str
    code: str
    output: str = ""
    """JSON that the code prints."""
    sample: str = ""
    """Response that differs between calls, such as multipart with a random boundary."""

    def markdown(self) -> str:
        """Return the call as fenced blocks."""
        blocks = [self.introduction, _fenced(self.language, self.code)]
        if self.output:
            blocks.append(_fenced("json", self.output))
        if self.sample:
            blocks += [
                "The response looks like this:",
                "<!-- not run: a response -->\n" + _fenced("text", self.sample),
            ]
        return "\n\n".join(block for block in blocks if block)


def pretty(value: Any) -> str:
    """Return indented JSON with each list of numbers on one line."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return re.sub(r"\[([\d\s.,-]*)\]", lambda numbers: f"[{' '.join(numbers[1].split())}]", text)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def _curl_post(path: str, fields: str = "", options: str = "") -> str:
    """Return a shell command that posts the photo with further fields."""
    return f"""
printf '{{"input_image": "%s"{fields}}}' "$(base64 -w 0 photo.jpg)" |
  curl -sS --fail-with-body -H 'Content-Type: application/json' --data-binary @- {options}\\
    {URL}{path}
"""


PYTHON = f"""
import base64, json, urllib.request
from email import message_from_bytes


def segment(**fields):
    headers = {{"Content-Type": "application/json"}}
    request = urllib.request.Request("{URL}/mobile_sam", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request) as response:
        head = f"Content-Type: {{response.headers['Content-Type']}}\\r\\n\\r\\n".encode()
        parts = message_from_bytes(head + response.read()).get_payload()
    return {{part.get_param("name", header="Content-Disposition"): part.get_payload(decode=True) for part in parts}}


image = base64.b64encode(open("photo.jpg", "rb").read()).decode()
sails = segment(input_image=image, pos_coords=[{photo.SAILS}], mask_format="png", low_res_mask=True)
result = json.loads(sails["result"])

boat = segment(
    image_id=result["image_id"],
    mask_input=result["masks"][0]["low_res_mask"],
    pos_coords=[{photo.SAILS}, {photo.HULL}],
    neg_coords=[{photo.REFLECTION}],
    mask_format="png",
)
open("mask.png", "wb").write(boat["mask"])
open("segmented_image.png", "wb").write(boat["segmented_image"])
print(json.dumps(json.loads(boat["result"])["masks"]))
"""

CALLS: dict[str, tuple[Call, ...]] = {
    "mobile_sam": (
        Call(
            "",
            "sh",
            _curl_post("/mobile_sam", f', "pos_coords": [{photo.BALLOON}], "mask_format": "rle"', "-o response "),
            sample=examples.multipart_body(photo.RUN_LENGTHS, photo.RESULT).replace("\r\n", "\n"),
        ),
        Call(
            "Python without further packages: segment the sails of a boat, then add the hull but not its reflection:",
            "python",
            PYTHON,
            output=json.dumps(photo.BOAT),
        ),
    ),
    "embed": (Call("", "sh", _curl_post("/embed"), output=pretty(photo.IMAGE)),),
    "everything": (
        Call("", "sh", _curl_post("/everything", ', "points_per_side": 8'), output=pretty(photo.EVERYTHING)),
        Call(
            "With `progress`, as a stream of JSON lines:",
            "sh",
            _curl_post("/everything", ', "points_per_side": 8, "progress": true', "-N "),
            sample=examples.progress_lines(photo.EVERYTHING),
        ),
    ),
    "info": (Call("", "sh", f"curl -sS --fail-with-body {URL}/info", output=pretty(examples.INFO)),),
    "livez": (Call("", "sh", f"curl -sS --fail-with-body {URL}/livez"),),
    "readyz": (Call("", "sh", f"curl -sS --fail-with-body {URL}/readyz"),),
    "metrics": (Call("", "sh", f"curl -sS --fail-with-body {URL}/metrics"),),
}
"""Calls by operation id."""
