"""The server of the package `isat-sam-backend`, for `uvicorn benchmarks.peers.isat:app`, in the peers' environment."""

from __future__ import annotations

from benchmarks.peers import operators

operators.declare()

from ISAT_SAM_BACKEND.main import app  # noqa: E402


@app.get("/readyz")
def ready() -> str:
    """Answer once the server has started, which includes loading the model."""
    return "ready"
