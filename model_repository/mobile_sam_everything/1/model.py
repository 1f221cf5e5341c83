"""Makes the automatic masks of a batch of grid points, at a low priority."""

import os
import sys

if path := os.environ.get("MOBILE_SAM_ORCHESTRATOR_PATH"):  # the service sets it; elsewhere, install the package
    sys.path.append(path)
try:
    from orchestrator.triton_io import EverythingModel
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: install the package `orchestrator` and its dependencies for Triton's Python") from None


class TritonPythonModel(EverythingModel):
    """One process of the model, which answers one request at a time."""
