"""A Triton of its own for a BentoML service over any model repository: set up, started by BentoML, watched, ended.

triton_runner = embedded.runner(Path(__file__).with_name("model_repository"))
svc = bentoml.legacy.Service("name", runners=[triton_runner])
svc.on_deployment(embedded.check)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import bentoml

from utils import health, triton
from utils.bento import keep_metrics_apart, leave_limits_and_respawning_to_us, set_up_process_manager
from utils.settings import Settings, SettingsError
from utils.traces import TracesError
from utils.watch.probes import PROBES_VARIABLE, SERVER_ONLY


def runner(repository: Path, *, auto_complete: bool = False) -> Any:
    """A `bentoml.triton.Runner` named "triton".

    Args:
        repository: holds a folder per model.
        auto_complete: models may complete their own config.pbtxt.

    Raises:
        SystemExit: Triton cannot be set up here; one line says what is missing and what to do.
    """
    try:
        triton.prepare(Settings.from_environment().cache_dir)
    except (SettingsError, triton.TritonSetupError) as error:
        raise SystemExit(f"error: {error}") from None
    os.environ.setdefault(PROBES_VARIABLE, SERVER_ONLY)
    return start_with(repository, auto_complete=auto_complete)


def start_with(repository: Path | str, control_mode: str = "none", *, auto_complete: bool = False) -> Any:
    """The same for a Triton that is set up already, which may also read its models from elsewhere.

    Args:
        repository: a folder, or a URL of a storage.
        control_mode: when Triton loads models: `none`, `explicit` or `poll`.
        auto_complete: as of `runner`.
    """
    run_dir = health.run_dir()
    health.shared_file()  # made by the process that lives longest
    leave_limits_and_respawning_to_us()
    set_up_process_manager(run_dir)
    keep_metrics_apart(run_dir)
    try:
        flags = triton.server_flags(control_mode, auto_complete=auto_complete)
    except TracesError as error:
        raise SystemExit(f"error: {error}") from None
    return bentoml.triton.Runner("triton", str(repository), tritonserver_type="http", cli_args=flags)


def open_grpc(triton_runner: Any, port: int) -> None:
    """Have the Triton of a runner answer gRPC as well, on a port of this machine; BentoML uses its HTTP all the same.

    Args:
        triton_runner: as `runner` made it.
        port: a free one.
    """
    triton_runner.cli_args.extend(triton.grpc_flags(port))  # of two flags Triton takes the later one


def check() -> None:
    """Remove what a killed service left behind, and end here, in one line, where there is no room for Triton."""
    clean_up()
    try:
        triton.check_shared_memory()
    except triton.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None


def clean_up() -> None:
    """Remove what killed services left behind."""
    triton.remove_stale_shared_memory()
    health.remove_stale_run_dirs()
