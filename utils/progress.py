"""Running of commands with a log file and a progress bar. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
CLEAR_LINE = b"\r\x1b[2K"
SHOW_CURSOR = b"\x1b[?25h"
CHUNK_BYTES = 65_536
MAX_ROWS = 6
"""Height of the pseudo-terminal, which bounds the number of bars that uv draws for its downloads."""


def run(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command.

    If standard error is a terminal, the command gets a pseudo-terminal and its progress bar is shown; finished lines go
    to the log only. Credentials in URLs are masked.

    Args:
        command: program and arguments.
        log: file to append the output to.
        environment: the command's environment variables.

    Returns:
        The exit status, and the output as written to the log.

    Raises:
        OSError: the program cannot be run, or the log cannot be written.
    """
    terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    reader, writer = pty.openpty() if terminal else os.pipe()
    output = []
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(FileIO(reader))
        file = stack.enter_context(log.open("a", buffering=1))
        with FileIO(writer, "w") as sink:
            if terminal:
                stack.callback(_draw, CLEAR_LINE + SHOW_CURSOR)
                columns, rows = os.get_terminal_size(sys.stderr.fileno())
                fcntl.ioctl(
                    sink,
                    termios.TIOCSWINSZ,
                    struct.pack("HHHH", min(rows or MAX_ROWS, MAX_ROWS), columns, 0, 0),
                )
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment)
        stack.enter_context(process)
        stack.callback(process.kill)  # no effect if it has ended
        for line in _lines(stream, terminal):
            output.append(line)
            file.write(line)
        process.wait()
    return process.returncode, "".join(output)


def _lines(stream: FileIO, terminal: bool) -> Iterator[str]:
    """Yield a command's lines without escape sequences and overwritten text; draw unfinished ones on the terminal."""
    rest = b""
    while chunk := _read(stream):
        if terminal:
            *finished, unfinished = chunk.split(b"\n")
            _draw(b"".join(line.rstrip(b"\r").rpartition(b"\r")[0] + CLEAR_LINE for line in finished) + unfinished)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(_clean, lines)
        rest = rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :]
    if rest:
        yield _clean(rest)


def _read(stream: FileIO) -> bytes:
    """Return the next bytes, empty at the end."""
    try:
        return stream.read(CHUNK_BYTES) or b""
    except OSError as error:
        if error.errno != errno.EIO:  # end of a pseudo-terminal
            raise
        return b""


def _draw(text: bytes) -> None:
    """Write to the terminal without buffering."""
    sys.stderr.buffer.write(text)
    sys.stderr.flush()


def _clean(line: bytes) -> str:
    """Return a line as it remains on a terminal, without credentials."""
    text = ESCAPE.sub("", line.decode(errors="replace").rstrip("\r").rpartition("\r")[2])
    return CREDENTIALS.sub("****@", text) + "\n"
