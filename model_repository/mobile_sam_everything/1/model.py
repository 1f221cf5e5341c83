"""Makes the automatic masks of a batch of grid points, at a low priority."""

import os
import sys

# Set by the service; elsewhere, install `orchestrator`.
if path := os.environ.get("MOBILE_SAM_ORCHESTRATOR_PATH"):
    sys.path.append(path)
from orchestrator.triton_io import EverythingModel as TritonPythonModel  # noqa: F401
