"""Segments objects where that takes long, at a low priority."""

import os
import sys

# Set by the service; elsewhere, install `orchestrator`.
if path := os.environ.get("MOBILE_SAM_ORCHESTRATOR_PATH"):
    sys.path.append(path)
from orchestrator.triton_io import SegmentModel as TritonPythonModel  # noqa: F401
