"""The server of `isat-sam-backend`, which encodes images for clients that decode, with a path that says it is ready."""

from benchmarks.peers import operators

operators.declare()

from ISAT_SAM_BACKEND.main import app  # noqa: E402


@app.get("/readyz")
def ready() -> str:
    """Report that the server has started; it loads the model before."""
    return "ready"
