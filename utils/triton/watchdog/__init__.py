"""Watchdog of Triton: a separate process with few imports."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """Times of the watchdog; tests use shorter ones."""

    tick_s: float = 0.5
    """Time between two checks."""
    stopped_grace_s: float = 3.0
    """Time that a process may stay stopped, for example by a debugger, before Triton is
    restarted."""
    hang_margin_s: float = 20.0
    """Time added to the inference timeout before a model without an answer counts as hung."""
    start_timeout_s: float = 1800.0
    """Time for Triton to load its models; a repository of one's own may build engines for
    minutes."""
    start_reap_timeout_s: float = 10.0
    """Time for a Python process to end while Triton loads its models and waits for that."""
    restart_delays_s: tuple[float, ...] = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
    """Delays before consecutive restarts without a ready Triton in between."""
    drain_timeout_s: float = 28.0
    """Time for API workers to finish accepted requests."""
    reap_timeout_s: float = 3.0
    """Time for Triton to reap a Python process that it ended itself."""
    stop_timeout_s: float = 9.0
    """Time for Triton to stop; a little more than its own `--exit-timeout-secs`."""
    idle_before_probe_s: float = 10.0
    """Time from a success of a probe to its next run."""
    encoder_idle_before_probe_s: float = 30.0
    """The same for new images, where callers' successes count too: the probe occupies all cores."""
    retry_interval_s: float = 1.0
    """Time from a failed probe to the next one, after the first success."""
    late_after_s: float = 15.0
    """Duration of a probe after which the model counts as failing; probes queue behind callers'
    requests."""
    metrics_timeout_s: float = 10.0
    """Time without an answer from Triton's metrics endpoint, which does not depend on the
    models."""
    max_clock_step_s: float = 2.0
    """Longest time between two updates that counts: more means that the watchdog itself was
    suspended."""
