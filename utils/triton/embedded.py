"""Triton for a BentoML service with any model repository: setup, start through BentoML, supervision and shutdown.

triton_runner = embedded.runner(Path(__file__).with_name("model_repository"))
svc = bentoml.legacy.Service("name", runners=[triton_runner])
svc.on_deployment(embedded.check)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import bentoml

from utils.bento import disable_bentoml_limits, enable_worker_respawn, isolate_metrics, set_up_process_manager
from utils.observability.traces import TracesError
from utils.settings import Settings, SettingsError
from utils.triton import flags, installation, shared_memory
from utils.triton.run import Run, remove_stale_folders


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


def make_runner(repository: Path | str, control_mode: str = "none", *, auto_complete: bool = False) -> Any:
    """Return the runner for a Triton that is already set up.

    Args:
        repository: folder or storage URL of the model repository.
        control_mode: Triton's model control mode: `none`, `explicit` or `poll`.
        auto_complete: as for `runner`.
    """
    folder = Path(Run.current().folder)  # created here, by the process that lives longest
    disable_bentoml_limits()
    enable_worker_respawn()
    set_up_process_manager(folder)
    isolate_metrics(folder)
    try:
        server_flags = flags.server_flags(control_mode, auto_complete=auto_complete)
    except TracesError as error:
        raise SystemExit(f"error: {error}") from None
    return bentoml.triton.Runner("triton", str(repository), tritonserver_type="http", cli_args=server_flags)


def open_grpc(triton_runner: Any, port: int) -> None:
    """Enable gRPC on a loopback port, in addition to the HTTP that BentoML uses.

    Args:
        triton_runner: the result of `runner`.
        port: a free port.
    """
    triton_runner.cli_args.extend(flags.grpc_flags(port))  # the last of repeated flags applies


def check() -> None:
    """Clean up after killed services, and exit with an error if there is too little shared memory."""
    clean_up()
    try:
        shared_memory.check_shared_memory()
    except installation.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None


def clean_up() -> None:
    """Remove shared memory and run folders of killed services."""
    shared_memory.remove_stale_shared_memory()
    remove_stale_folders()
