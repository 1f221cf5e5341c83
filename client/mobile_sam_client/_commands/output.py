"""Output: results to standard output, everything else to standard error, animations only on a terminal."""

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


def escape_unencodable_output() -> None:
    """Escape characters that standard output or error cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_line(line: str) -> None:
    """Print a line of the result to standard output."""
    typer.echo(_printable(line))


def _printable(line: str) -> str:
    """Replace control characters, such as those in file names, which could move the terminal's cursor."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)


def print_json(document: dict[str, Any]) -> None:
    """Print the result as JSON to standard output."""
    typer.echo(json.dumps(document, indent=2))


def print_note(line: str) -> None:
    """Print a line to standard error."""
    typer.echo(_printable(line), err=True)


def print_error(line: str) -> None:
    """Print an error to standard error."""
    print_note(f"error: {line}")


def print_weights(weights: Weights) -> None:
    """Print the name of the weights, and the remark on them if any."""
    print_line(f"weights: {weights.name}")
    if weights.note:
        print_note(f"note: {weights.note}")


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


@contextmanager
def progress(description: str) -> Iterator[Progress]:
    """Show a progress bar with one task on standard error, if that is a terminal.

    Args:
        description: label of the bar.
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
    """Show a spinner on standard error, or a plain line if that is not a terminal."""
    console = Console(stderr=True)
    if console.is_interactive:
        with console.status(description):
            yield
    else:
        print_note(description)
        yield
