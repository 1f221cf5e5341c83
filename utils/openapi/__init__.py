"""The OpenAPI document, the Swagger page that shows it, and the reference in `docs/http.md` that is made from it."""

from utils.openapi.document import document
from utils.openapi.examples import EXAMPLE, EXAMPLE_IMAGE
from utils.openapi.page import pages

__all__ = ["EXAMPLE", "EXAMPLE_IMAGE", "document", "pages"]
