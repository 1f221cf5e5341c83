"""Calls of each operation for the reference: they run as they stand beside a copy of the sample, `photo.jpg`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from utils.openapi import examples, photo

URL = "http://127.0.0.1:3000"


@dataclass(frozen=True)
class Call:
    """Code to run, and what it prints where that is worth showing."""

    says: str
    """A sentence before it; may be empty."""
    language: str
    code: str
    prints: str = ""
    """JSON."""
    looks_like: str = ""
    """Text that is not printed just so, such as bytes with a boundary of their own."""

    def markdown(self) -> str:
        """The call in fenced blocks."""
        blocks = [self.says, _fenced(self.language, self.code)]
        if self.prints:
            blocks.append(_fenced("json", self.prints))
        if self.looks_like:
            blocks += [
                "What comes looks like this:",
                "<!-- not run: an answer -->\n" + _fenced("text", self.looks_like),
            ]
        return "\n\n".join(block for block in blocks if block)


def pretty(value: Any) -> str:
    """JSON with a line for each member, and lists of numbers in one."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return re.sub(r"\[([\d\s.,-]*)\]", lambda numbers: f"[{' '.join(numbers[1].split())}]", text)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def _posted(path: str, fields: str = "", options: str = "") -> str:
    """Shell code that sends the photo with further fields."""
    return f"""
printf '{{"input_image": "%s"{fields}}}' "$(base64 -w 0 photo.jpg)" |
  curl -sS --fail-with-body -H 'Content-Type: application/json' --data-binary @- {options}\\
    {URL}{path}
"""


PYTHON = f"""
import base64, json, urllib.request
from email import message_from_bytes


def ask(**fields):
    headers = {{"Content-Type": "application/json"}}
    request = urllib.request.Request("{URL}/mobile_sam", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        head = f"Content-Type: {{answer.headers['Content-Type']}}\\r\\n\\r\\n".encode()
        parts = message_from_bytes(head + answer.read()).get_payload()
    return {{part.get_param("name", header="Content-Disposition"): part.get_payload(decode=True) for part in parts}}


image = base64.b64encode(open("photo.jpg", "rb").read()).decode()
sails = ask(input_image=image, pos_coords=[{photo.SAILS}], mask_format="png", low_res_mask=True)
result = json.loads(sails["result"])

boat = ask(
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
            _posted("/mobile_sam", f', "pos_coords": [{photo.BALLOON}], "mask_format": "rle"', "-o answer "),
            looks_like=examples.multipart_of(photo.RUN_LENGTHS, photo.RESULT).replace("\r\n", "\n"),
        ),
        Call(
            "From Python, without further packages: the sails of a boat, then its hull too, but not its reflection:",
            "python",
            PYTHON,
            prints=json.dumps(photo.BOAT),
        ),
    ),
    "embed": (Call("", "sh", _posted("/embed"), prints=pretty(photo.IMAGE)),),
    "everything": (
        Call("", "sh", _posted("/everything", ', "points_per_side": 8'), prints=pretty(photo.EVERYTHING)),
        Call(
            "With `progress`, line by line as the work goes on:",
            "sh",
            _posted("/everything", ', "points_per_side": 8, "progress": true', "-N "),
            looks_like=examples.lines_of(photo.EVERYTHING),
        ),
    ),
    "info": (Call("", "sh", f"curl -sS --fail-with-body {URL}/info", prints=pretty(examples.INFO)),),
    "livez": (Call("", "sh", f"curl -sS --fail-with-body {URL}/livez"),),
    "readyz": (Call("", "sh", f"curl -sS --fail-with-body {URL}/readyz"),),
    "metrics": (Call("", "sh", f"curl -sS --fail-with-body {URL}/metrics"),),
}
"""By operation."""
