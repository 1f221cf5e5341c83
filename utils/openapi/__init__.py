"""The OpenAPI document, the Swagger page, and the generator of `docs/http.md`."""

from utils.openapi.document import document
from utils.openapi.examples import EXAMPLE, EXAMPLE_IMAGE
from utils.openapi.page import pages

__all__ = ["EXAMPLE", "EXAMPLE_IMAGE", "document", "pages"]
