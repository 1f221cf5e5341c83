"""The command line `mobile-sam`."""

from __future__ import annotations

from mobile_sam_client._commands.app import main

__all__ = ["main"]
