"""What is printed: results to standard output, everything else to standard error, and movement only on a terminal."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mobile_sam_client import Weights


def make_streams_lenient() -> None:
    """Let a character that standard output or error cannot encode be escaped, in place of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def shown(name: str | PathLike[str]) -> str:
    """A file's name as it may be printed: without the control characters that move a terminal's cursor."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(name))


def tell(line: str) -> None:
    """Print a line of the result."""
    typer.echo(line)


def tell_json(document: dict[str, Any]) -> None:
    """Print the result for a program."""
    typer.echo(json.dumps(document, indent=2))


def tell_aside(line: str) -> None:
    """Print what is not the result."""
    typer.echo(line, err=True)


def tell_error(line: str) -> None:
    """Print what went wrong."""
    tell_aside(f"error: {line}")


def tell_weights(weights: Weights) -> None:
    """Print what the answer was made with, and what is to be known of it."""
    tell(f"weights: {weights.name}")
    if weights.note:
        tell_aside(f"note: {weights.note}")


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
