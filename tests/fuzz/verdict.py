"""Checks of answers against the contract: problem documents (RFC 9457) for errors, and never a 5xx."""

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.fuzz.hostile_requests import FuzzRequest

PROBLEM, JSON, LINES, MULTIPART, PNG = (
    "application/problem+json",
    "application/json",
    "application/x-ndjson",
    "multipart/form-data",
    "image/png",
)
MEMBERS: dict[str, type] = {"type": str, "title": str, "status": int, "detail": str}
TYPES = {"/mobile_sam": (MULTIPART,), "/embed": (JSON,), "/everything": (JSON, LINES)}
"""Content types of answers with status 200 to a POST, by path."""
CHOICES = {"/mobile_sam": (JSON, PNG)}
"""Further content types, of answers to requests that accept them."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class FuzzAnswer:
    """Answer of the service."""

    status: int
    content_type: str
    body: bytes

    @property
    def kind(self) -> str:
        """Return the type of the problem, or the content type."""
        if self.status >= 400 and self.content_type == PROBLEM:
            return str(_document(self.body).get("type", PROBLEM))
        return self.content_type


def faults(request: FuzzRequest, answer: FuzzAnswer) -> list[str]:
    """Return the violations in an answer."""
    if answer.status >= 500 or answer.status == 429:
        return [f"{answer.status} {answer.body[:200]!r}"]
    if answer.status >= 400:
        return [] if request.method == "HEAD" else _problem_faults(answer)
    path = request.path.partition("?")[0]
    if path not in TYPES or (request.method, answer.status) != ("POST", 200):
        return []
    accepted = ",".join(value for name, value in request.headers if name.lower() == "accept")
    chosen = [kind for kind in CHOICES.get(path, ()) if kind in accepted]
    if answer.content_type not in (*TYPES[path], *chosen):
        return [f"200 with content type {answer.content_type!r}"]
    return _content_faults(answer)


def _problem_faults(answer: FuzzAnswer) -> list[str]:
    if answer.content_type != PROBLEM:
        return [f"{answer.status} with content type {answer.content_type!r}: {answer.body[:200]!r}"]
    document = _document(answer.body)
    found = [
        f"{name!r} of the problem is {document.get(name)!r}"
        for name, kind in MEMBERS.items()
        if not isinstance(document.get(name), kind) or document[name] == ""
    ]
    if document.get("status") != answer.status:
        found.append(f"{answer.status} with a problem of status {document.get('status')!r}")
    if len(answer.body) > 20_000:
        found.append(f"a problem of {len(answer.body)} bytes")
    return found


def _content_faults(answer: FuzzAnswer) -> list[str]:
    if answer.content_type == MULTIPART:
        boundary = re.match(rb"--(\S+)\r\n", answer.body)
        if boundary is None or not answer.body.endswith(b"--" + boundary[1] + b"--\r\n"):
            return ["200 with an invalid multipart body"]
        return []
    if answer.content_type == PNG:
        return [] if answer.body.startswith(PNG_SIGNATURE) else ["200 with an invalid PNG file"]
    lines = answer.body.splitlines() if answer.content_type == LINES else [answer.body]
    documents = [_document(line) for line in lines]
    if not all(documents):
        return ["200 with a body that is not a JSON object"]
    problem = documents[-1].get("problem", {})
    return [f"200 whose last line is {problem!r}"] if problem.get("status", 0) >= 500 else []


def _document(text: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the text is anything else."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
