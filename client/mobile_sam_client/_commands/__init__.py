"""The command line `mobile-sam`: each command parses, asks the service through the client, and prints."""

from __future__ import annotations

from mobile_sam_client._commands.app import main

__all__ = ["main"]
