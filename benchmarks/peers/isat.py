"""The server of `isat-sam-backend`, which encodes images for clients that decode, with a path
that says it is ready.
"""

import benchmarks.peers.official  # noqa: F401 - declares operators, before the next import  # isort: skip
from ISAT_SAM_BACKEND.main import app


@app.get("/readyz")
def ready() -> str:
    """Report that the server has started; it loads the model before."""
    return "ready"
