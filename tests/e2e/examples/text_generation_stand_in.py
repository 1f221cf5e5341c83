"""The service of examples/text_generation with the model repository in STAND_IN_REPOSITORY."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from utils.triton import embedded

_runner = embedded.runner


def runner(repository: Path, *, auto_complete: bool = False) -> Any:
    return _runner(Path(os.environ["STAND_IN_REPOSITORY"]), auto_complete=auto_complete)


embedded.runner = runner

from examples.text_generation.service import svc  # noqa: E402, F401
