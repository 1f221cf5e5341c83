"""The Swagger page. It replaces BentoML's, which loads a script from another host."""

from __future__ import annotations

import orjson
from starlette.responses import HTMLResponse, Response

from utils.api.openapi.document import document

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>MobileSAM on Triton</title>
<link rel="stylesheet" href="./static_content/swagger-ui.css">
<link rel="icon" type="image/png" href="./static_content/favicon-light-32x32.png">
<style>
html { color-scheme: light }
body { margin: 0; background: #fafafa }
header { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .25rem 1.5rem; padding: .75rem 1.25rem;
  font: 1rem/1.4 system-ui, sans-serif; background: #1b2a3a }
header a { color: #9fd3ff }
/* No server selection: there is only this server. */
.swagger-ui .topbar, .swagger-ui .servers, .swagger-ui .servers-title, .swagger-ui .operation-servers,
.swagger-ui .scheme-container:not(:has(.authorize)), .swagger-ui .response-col_links { display: none }
.swagger-ui .info { margin: 1.5rem 0 }
/* Swagger UI has light colours only. A filter on the root, not on a child, keeps its fixed dialogs in place. */
@media (prefers-color-scheme: dark) {
  html { filter: invert(0.9) hue-rotate(180deg) }
  header, .swagger-ui .microlight, .swagger-ui img { filter: invert(1) hue-rotate(180deg) }
}
</style>
</head>
<body>
<header>
<a href="ui">Click on an image</a>
<a href="docs.json">docs.json</a>
</header>
<noscript><p>This page needs JavaScript. The OpenAPI document is <a href="docs.json">docs.json</a>.</p></noscript>
<main id="swagger-ui"></main>
<script src="./static_content/swagger-ui-bundle.js" charset="utf-8"></script>
<script src="./static_content/swagger-ui-standalone-preset.js" charset="utf-8"></script>
<script src="./static_content/swagger-initializer.js" charset="utf-8"></script>
</body>
</html>
"""


def pages(*, need_key: bool = False, metrics_need_key: bool = False, admin: bool = False) -> dict[str, Response]:
    """Return the responses for `/` and `/docs.json`, and for `/docs` and `/openapi.json`, where others look for them.

    Args:
        need_key: true if inference requests require an API key.
        metrics_need_key: true if `/metrics` requires an API key.
        admin: true to include the paths below `/admin`.
    """
    text = orjson.dumps(document(need_key=need_key, metrics_need_key=metrics_need_key, admin=admin))
    page, described = HTMLResponse(PAGE), Response(text, media_type="application/json")
    return {"/": page, "/docs": page, "/docs.json": described, "/openapi.json": described}
