"""Segments objects where that takes long, at a low priority."""

import os
import sys

if path := os.environ.get(
    "MOBILE_SAM_ORCHESTRATOR_PATH"
):  # set by the service; elsewhere, install `orchestrator`
    sys.path.append(path)
from orchestrator.triton_io import SegmentModel as TritonPythonModel  # noqa: F401
