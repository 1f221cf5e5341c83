"""The runner that starts Triton, for a BentoML service with any model repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bentoml

from utils.bento import disable_bentoml_limits, enable_worker_respawn, isolate_metrics, set_up_process_manager
from utils.observability.traces import TracesError
from utils.triton.flags import server_flags
from utils.triton.health import read_health
from utils.triton.run import Run, remove_stale_folders
from utils.triton.shared_memory import remove_stale_shared_memory


def make_runner(
    repository: Path | str, control_mode: str = "none", *, auto_complete: bool = False, restricted: bool = True
) -> Any:
    """Return the runner for a Triton that is already set up.

    Args:
        repository: folder or storage URL of the model repository.
        control_mode: Triton's model control mode: `none`, `explicit` or `poll`.
        auto_complete: let models complete their own config.pbtxt.
        restricted: require the service's key for Triton's control APIs.
    """
    folder = Path(Run.current().folder)  # created here, by the process that lives longest
    disable_bentoml_limits()
    enable_worker_respawn()
    set_up_process_manager(folder, start_failure)
    isolate_metrics(folder)
    try:
        flags = server_flags(control_mode, auto_complete=auto_complete, restricted=restricted)
    except TracesError as error:
        raise SystemExit(f"error: {error}") from None
    return bentoml.triton.Runner("triton", str(repository), tritonserver_type="http", cli_args=flags)


def start_failure() -> str:
    """Return why Triton could not start, or an empty string."""
    health = read_health(Path(Run.current().shared_file))
    return health.reason if health.state == "failed" else ""


def clean_up() -> None:
    """Remove shared memory and run folders of killed services."""
    remove_stale_shared_memory()
    remove_stale_folders()
