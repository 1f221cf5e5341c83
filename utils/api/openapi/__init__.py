"""The OpenAPI document, the Swagger page, and the generator of `docs/http.md`."""

from utils.api.openapi.document import document, pages
from utils.api.openapi.examples import EXAMPLE, EXAMPLE_IMAGE

__all__ = ["EXAMPLE", "EXAMPLE_IMAGE", "document", "pages"]
