"""Triton for a BentoML service with any model repository: setup, start through BentoML, supervision and shutdown.

triton_runner = embedded.runner(Path(__file__).with_name("model_repository"))
svc = bentoml.legacy.Service("name", runners=[triton_runner])
svc.on_deployment(embedded.check)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from utils.settings import Settings, SettingsError
from utils.triton import installation
from utils.triton.run import Run
from utils.triton.runner import clean_up, make_runner
from utils.triton.shared_memory import check_shared_memory


def runner(repository: Path, *, auto_complete: bool = False) -> Any:
    """Set up Triton and return a `bentoml.triton.Runner` named "triton".

    Args:
        repository: model repository, a folder per model.
        auto_complete: let models complete their own config.pbtxt.

    Raises:
        SystemExit: Triton cannot be set up on this machine.
    """
    try:
        installation.prepare(Settings.from_environment().cache_dir)
    except (SettingsError, installation.TritonSetupError) as error:
        raise SystemExit(f"error: {error}") from None
    replace(Run.current(), probe_models=False).publish()
    return make_runner(repository, auto_complete=auto_complete)


def check() -> None:
    """Clean up after killed services, and exit with an error if there is too little shared memory."""
    clean_up()
    try:
        check_shared_memory()
    except installation.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None
