"""The watchdog of Triton: its own process, which imports little."""
