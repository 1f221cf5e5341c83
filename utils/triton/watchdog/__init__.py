"""Watchdog of Triton: a separate process with few imports."""
