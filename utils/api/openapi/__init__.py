"""The OpenAPI document and the Swagger page."""

from utils.api.openapi.document import document, pages
from utils.api.openapi.examples import EXAMPLE

__all__ = ["EXAMPLE", "document", "pages"]
