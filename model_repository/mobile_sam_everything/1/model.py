"""Makes the automatic masks of a batch of grid points, at a low priority."""

import os
import sys
from typing import Any

if path := os.environ.get("MOBILE_SAM_ORCHESTRATOR_PATH"):  # the service sets it; elsewhere, install the package
    sys.path.append(path)
try:
    from orchestrator.everything import OUTPUTS, records
    from orchestrator.triton_io import OrchestratorModel
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: install the package `orchestrator` and its dependencies for Triton's Python") from None


class TritonPythonModel:
    """One process of the model, which answers one request at a time."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the settings and open the cache."""
        self.model = OrchestratorModel(args, records, OUTPUTS)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; an error of one does not affect the others."""
        return self.model.execute(requests)

    def finalize(self) -> None:
        """Release what the model holds."""
        self.model.close()
