"""What is printed: results to standard output, everything else to standard error, and movement only on a terminal."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mobile_sam_client import Weights
from mobile_sam_client._calls import logger


def make_streams_lenient() -> None:
    """Let a character that standard output or error cannot encode be escaped, in place of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def tell(line: str) -> None:
    """Print a line of the result."""
    typer.echo(_printable(line))


def _printable(line: str) -> str:
    """A line without control characters: one in a file's name would move the terminal's cursor."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)


def tell_json(document: dict[str, Any]) -> None:
    """Print the result for a program."""
    typer.echo(json.dumps(document, indent=2))


def tell_aside(line: str) -> None:
    """Print what is not the result."""
    typer.echo(_printable(line), err=True)


def tell_error(line: str) -> None:
    """Print what went wrong."""
    tell_aside(f"error: {line}")


def tell_weights(weights: Weights) -> None:
    """Print what the answer was made with, and what is to be known of it."""
    tell(f"weights: {weights.name}")
    if weights.note:
        tell_aside(f"note: {weights.note}")


class _Asides(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell_aside(record.getMessage())


@contextmanager
def log_told() -> Iterator[None]:
    """Within it, what the client logs is printed aside: that it tries again, when, and why."""
    handler, level = _Asides(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@contextmanager
def progress(description: str) -> Iterator[Progress]:
    """A bar on standard error with one task; silent where that is no terminal.

    Args:
        description: what is being done, in a word or two.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_interactive, transient=True) as bar:
        bar.add_task(description, total=None)
        yield bar


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """A sign of life on standard error while something takes its time; a plain line where that is no terminal."""
    console = Console(stderr=True)
    if console.is_interactive:
        with console.status(description):
            yield
    else:
        tell_aside(description)
        yield
