"""Errors of the command line, and one-line descriptions of errors."""

from __future__ import annotations

from pathlib import Path

EXIT_INTERRUPTED = 130
"""Exit status of a command ended by Ctrl-C, by shell convention."""


class CommandError(Exception):
    """A command failed; the message is one line."""


class CannotWrite(CommandError):
    """A file cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot write {path}: {error.strerror or error}")
        self.errno = error.errno


def describe(error: Exception) -> str:
    """Return the error in one line, without a file name."""
    text = error.strerror if isinstance(error, OSError) else None
    return " ".join((text or str(error) or type(error).__name__).split())


def describe_with_file(error: Exception) -> str:
    """Return the error in one line, preceded by its file name if it has one."""
    name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    return f"{name}{describe(error)}"
