"""Segments objects in any image."""

import os
import sys

if path := os.environ.get("MOBILE_SAM_ORCHESTRATOR_PATH"):  # the service sets it; elsewhere, install the package
    sys.path.append(path)
try:
    from orchestrator.triton_io import SegmentModel
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: install the package `orchestrator` and its dependencies for Triton's Python") from None


class TritonPythonModel(SegmentModel):
    """One process of the model, which answers one request at a time."""
