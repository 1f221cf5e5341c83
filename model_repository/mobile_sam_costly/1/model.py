"""Segments objects where that takes long, at a low priority."""

import os
import sys
from typing import Any

if path := os.environ.get("MOBILE_SAM_ORCHESTRATOR_PATH"):  # the service sets it; elsewhere, install the package
    sys.path.append(path)
try:
    from orchestrator.segment import OUTPUTS, segment
    from orchestrator.triton_io import OrchestratorModel
    from orchestrator.warm_up import warm_up
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: install the package `orchestrator` and its dependencies for Triton's Python") from None


class TritonPythonModel:
    """One process of the model, which answers one request at a time."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the settings, open the cache, and warm up."""
        self.model = OrchestratorModel(args, segment, OUTPUTS)
        warm_up()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; an error of one does not affect the others."""
        return self.model.execute(requests)

    def finalize(self) -> None:
        """Release what the model holds."""
        self.model.close()
