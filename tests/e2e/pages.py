"""The code on the project's pages: what stands in their fenced blocks, and running it as a reader would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.server import ROOT

URL = "http://127.0.0.1:3000"
RUNNING, SHOWN = ("python", "sh"), ("json", "text")
FENCE = re.compile(r"^( *)```(.*)$")
NOT_RUN = re.compile(r"^\s*<!-- not run: (.+) -->$")
MAKE = re.compile(r'^\s*(?:#.*|(?:[A-Z_]+=(?:"[^"]*"|\S*) +)*make\b.*)?$')
"""A line of a block that names targets of the Makefile and does nothing else."""
IN_A_CLONE = ("client", "examples")
"""Folders of the repository whose programs a page's commands run."""
SAMPLES = Path("utils/page/static/samples")
"""The pictures that come with the repository."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str
    not_run: str
    """Why it is not run, as the page says; empty where it says nothing."""
    shows: Block | None = None
    """The block that shows what this one prints."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def only_make(self) -> bool:
        """Whether it names targets of the Makefile and nothing else."""
        return self.language == "sh" and all(MAKE.match(line) for line in self.code.splitlines())

    @property
    def runs(self) -> bool:
        return self.language in RUNNING and not self.not_run and not self.only_make


def pages() -> list[str]:
    """The pages for people, from the repository's root."""
    folders = (ROOT / "client", ROOT / "docs", ROOT / "examples")
    found = [ROOT / "README.md", *(page for folder in folders for page in sorted(folder.glob("*.md")))]
    found += sorted((ROOT / "examples").glob("*/README.md"))
    return [str(page.relative_to(ROOT)) for page in found]


def blocks(page: str, text: str) -> list[Block]:
    """The blocks of a page, each with what it shows; the blocks shown do not stand in the list by themselves."""
    found: list[Block] = []
    between = "the page's beginning"
    for block, before in _fenced(page, text):
        between = before.strip()
        if found and not between and found[-1].runs and not found[-1].shows and block.language in SHOWN:
            found[-1] = Block(**{**vars(found[-1]), "shows": block})
        else:
            found.append(block)
    return found


def _fenced(page: str, text: str) -> Iterator[tuple[Block, str]]:
    """Each fenced block, and the text between it and the one before."""
    lines = text.splitlines()
    number, before = 0, ["the page's beginning"]
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            before.append(lines[number])
            number += 1
            continue
        end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
        code = textwrap.dedent("\n".join(lines[number + 1 : end])) + "\n"
        told = [line for line in before if line.strip()][-1:]
        reason = next((match[1] for line in told if (match := NOT_RUN.match(line))), "")
        yield Block(page, number + 1, opening[2].strip(), code, reason), "\n".join(before)
        number, before = end + 1, []


class Reader:
    """Somebody who has cloned the repository, and tries a page there, with no pictures but the samples.

    Where pages and clients name the address that a service has by default, this one's stands.
    """

    def __init__(self, folder: Path, url: str) -> None:
        """Furnish the folder.

        Args:
            folder: an empty one.
            url: of the service that stands for the reader's own.
        """
        self.folder, self._url = folder, url
        (folder / ".venv").symlink_to(sys.prefix)
        for name in IN_A_CLONE:
            for source in (ROOT / name).rglob("*.py"):
                copy = folder / source.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(source.read_text().replace(URL, url))
        shutil.copytree(ROOT / SAMPLES, folder / SAMPLES)

    def run(self, block: Block) -> str:
        """What a block prints, which must end well."""
        program = ["bash", "-eo", "pipefail"] if block.language == "sh" else [sys.executable]
        return self.run_command([*program, "-c", block.code.replace(URL, self._url)], str(block))

    def run_command(self, command: Sequence[str], name: str) -> str:
        """What a command prints, which must end well.

        Args:
            command: a program and its arguments, run in the folder.
            name: what a failure calls it.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith("MOBILE_SAM_")}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**own, "PYTHONPATH": str(self.folder / "client"), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout


def matches(shown: Block, printed: str) -> bool:
    """Whether what came has the shape of what a page shows.

    Of JSON, names and kinds; of text, the words: numbers may be others, and … stands for anything.
    """
    if shown.language == "json":
        same: bool = shape(json.loads(printed)) == shape(json.loads(shown.code))
        return same
    pattern = ".*".join(re.escape(part) for part in _words(shown.code).split("…"))
    return re.fullmatch(pattern, _words(printed), re.DOTALL) is not None


def shape(value: Any) -> Any:
    """Names and kinds of a JSON value, without the values; of a list, those of its first."""
    if isinstance(value, dict):
        return {name: shape(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [shape(entry) for entry in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def _words(text: str) -> str:
    """Text without what depends on values: numbers all the same, no space more than one, no long lines."""
    return " ".join(re.sub(r"([─━=-])\1+", r"\1", re.sub(r"\d+(\.\d+)?", "0", text)).split())
