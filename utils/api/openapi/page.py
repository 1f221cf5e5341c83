"""The Swagger page. It replaces BentoML's, which loads a script from another host."""

from __future__ import annotations

from pathlib import Path

import orjson
from starlette.responses import HTMLResponse, Response

from utils.api.openapi.document import document

PAGE = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")


def pages(*, need_key: bool = False, metrics_need_key: bool = False, admin: bool = False) -> dict[str, Response]:
    """Return the responses for `/` and `/docs.json`, and for `/docs` and `/openapi.json`, where others look for them.

    The arguments are those of `document`.
    """
    text = orjson.dumps(document(need_key=need_key, metrics_need_key=metrics_need_key, admin=admin))
    page, described = HTMLResponse(PAGE), Response(text, media_type="application/json")
    return {"/": page, "/docs": page, "/docs.json": described, "/openapi.json": described}
