"""Flags of `tritonserver`, in addition to BentoML's."""

from __future__ import annotations

from utils.observability import traces
from utils.triton.installation import NVIDIA_DRIVER
from utils.triton.run import Run

KEY_HEADER = "x-mobile-sam-triton-key"
RESTRICTED_APIS = "model-repository,model-config,shared-memory,statistics,trace,logging"
SHARED_MEMORY_REGION_BYTES = 8 * 1024 * 1024


def server_flags(control_mode: str = "none", *, auto_complete: bool = False, restricted: bool = True) -> list[str]:
    """Return flags for `tritonserver`, in addition to BentoML's (repository, HTTP port and address).

    Args:
        control_mode: Triton's model control mode: `none`, `explicit` or `poll`.
        auto_complete: let models complete their own config.pbtxt.
        restricted: require the service's key for `RESTRICTED_APIS`.
    """
    run = Run.current()
    # Without a driver, Triton would log long warnings about GPU memory and GPU metrics.
    without_gpu = [] if NVIDIA_DRIVER.exists() else ["--pinned-memory-pool-byte-size=0", "--allow-gpu-metrics=false"]
    return [
        *without_gpu,
        "--allow-metrics=true",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={run.metrics_port}",
        "--exit-timeout-secs=8",
        *([] if auto_complete else ["--disable-auto-complete-config"]),
        f"--model-control-mode={control_mode}",
        *(["--load-model=*"] if control_mode == "explicit" else []),
        *traces.triton_flags(),
        "--log-info=false",
        *([f"--http-restricted-api={RESTRICTED_APIS}:{KEY_HEADER}={run.key}"] if restricted else []),
        f"--backend-config=python,shm-region-prefix-name={run.shm_prefix}",
        # The default regions of 1 MB grow in steps of 1 MB, but an image takes 3 MB and an answer 4 MB and more.
        f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY_REGION_BYTES}",
        f"--backend-config=python,shm-growth-byte-size={SHARED_MEMORY_REGION_BYTES}",
    ]


def restricted_header() -> dict[str, str]:
    """Return the header that grants access to Triton's restricted APIs."""
    return {KEY_HEADER: Run.current().key}
