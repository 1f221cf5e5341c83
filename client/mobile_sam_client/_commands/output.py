"""Output and errors: results go to standard output, all else to standard error, animations only to a terminal."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich import progress as bars
from rich.console import Console

from mobile_sam_client import Unauthorized, Weights
from mobile_sam_client._base import KEY_VARIABLE, logger

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
    hint = f"; set the API key in {KEY_VARIABLE}" if isinstance(error, Unauthorized) else ""
    return " ".join((text or str(error) or type(error).__name__).split()) + hint


def describe_with_file(error: Exception) -> str:
    """Return the error in one line, preceded by its file name if it has one."""
    name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    return f"{name}{describe(error)}"


def print_line(line: str, *, err: bool = False) -> None:
    """Print a line of the result to standard output.

    Control characters, such as those in file names, are replaced: they could move the terminal's cursor.
    """
    typer.echo("".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line), err=err)


def print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document))


def print_note(line: str) -> None:
    print_line(line, err=True)


def print_error(line: str) -> None:
    print_note(f"error: {line}")


def note_on(weights: Weights) -> str:
    """Return the remark on the weights; empty for the official ones, which need none."""
    return "" if weights.name == "official" else weights.note


def print_weights(weights: Weights, *, name: bool = True) -> None:
    """Print the name of the weights, unless `name` is False, and the remark on them if any."""
    if name:
        print_line(f"weights: {weights.name}")
    if note := note_on(weights):
        print_note(f"note: {note}")


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Print the client's log messages, such as retries, to standard error."""
    handler, level = _StderrHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _RateColumn(bars.ProgressColumn):
    def render(self, task: bars.Task) -> str:
        return f"{task.speed:.2f}/s" if task.speed else ""


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error, if that is a terminal, and yield its `update`, as Rich's."""
    console = Console(stderr=True)
    done = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn())
    times = (_RateColumn(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
    with bars.Progress(*done, *times, console=console, disable=not console.is_interactive, transient=True) as bar:
        yield partial(bar.update, bar.add_task(description, total=total))
