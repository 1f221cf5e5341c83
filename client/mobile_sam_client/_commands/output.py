"""Output and errors of the commands.

Results go to standard output, all else to standard error, animations only to a terminal.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer
from rich import progress as bars
from rich.console import Console

from mobile_sam_client import Weights
from mobile_sam_client._base import logger

EXIT_INTERRUPTED = 130
"""Exit status of a command ended by Ctrl-C, by shell convention."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class CommandError(Exception):
    """A command failed; the message is one line."""


def print_line(line: str, *, err: bool = False) -> None:
    """Print a line of the result to standard output.

    Control characters, such as those in file names, are replaced: they could move the terminal's
    cursor.
    """
    shown = [character if character.isprintable() else REPLACEMENT for character in line]
    typer.echo("".join(shown), err=err)


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
    note = note_on(weights)
    if note:
        print_note(f"note: {note}")


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Print the client's log messages, such as retries, to standard error."""
    handler = _StderrHandler()
    level = logger.level
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
    """Show a progress bar on standard error, if that is a terminal, and yield Rich's `update`."""
    console = Console(stderr=True)
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        _RateColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    is_hidden = not console.is_interactive
    with bars.Progress(*columns, console=console, disable=is_hidden, transient=True) as bar:
        yield partial(bar.update, bar.add_task(description, total=total))
