"""Errors of the command line itself, and the one line that tells of any known error."""

from __future__ import annotations

from pathlib import Path

INTERRUPTED = 130
"""The exit status that shells give a command ended by Ctrl-C."""


class CommandError(Exception):
    """A command cannot do what was asked; the message is one line that says why and what helps."""


class CannotWrite(CommandError):
    """A file cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot write {path}: {error.strerror or error}")
        self.errno = error.errno


def cause(error: Exception) -> str:
    """What happened, in one line, without the name of the file that it happened to."""
    words = error.strerror if isinstance(error, OSError) else None
    return " ".join((words or str(error) or type(error).__name__).split())


def reason(error: Exception) -> str:
    """What happened, in one line."""
    name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    return f"{name}{cause(error)}"
