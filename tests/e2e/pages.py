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
NUMBER = r"(\d+(?:\.\d+)?)"
VARYING = ("engine", "counts", "point_coords")
"""Members of JSON objects that differ between engines: its name, run lengths, and the grid click that found a mask."""


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
    """Return whether what came is what a page shows, as far as another engine may answer.

    Text is the same but for spaces, and … stands for anything. Numbers are near, as `near` says. A page may show the
    beginning of a list in JSON; of `VARYING` members only the kind is compared.
    """
    if shown.language == "json":
        return same_json(json.loads(shown.code), json.loads(printed))
    return same_text(shown.code, printed)


def same_json(shown: Any, came: Any) -> bool:
    """Return whether a JSON value is what a page shows, as `matches` says."""
    if isinstance(shown, dict) and isinstance(came, dict):
        return shown.keys() == came.keys() and all(
            type(value) is type(came[name]) if name in VARYING else same_json(value, came[name])
            for name, value in shown.items()
        )
    if isinstance(shown, list) and isinstance(came, list):
        return len(shown) <= len(came) and all(map(same_json, shown, came))
    if isinstance(shown, str) and isinstance(came, str):
        return re.fullmatch(re.escape(shown).replace("…", ".*"), came, re.DOTALL) is not None
    if isinstance(shown, bool) or isinstance(came, bool) or shown is None or came is None:
        return shown is came
    return isinstance(shown, int | float) and isinstance(came, int | float) and near(str(shown), str(came))


def same_text(shown: str, came: str) -> bool:
    """Return whether a text is what a page shows, as `matches` says."""
    pattern = re.sub(r"\d+(\\\.\d+)?", lambda _: NUMBER, re.escape(_words(shown))).replace("…", ".*")
    match = re.fullmatch(pattern, _words(came), re.DOTALL)
    return match is not None and all(map(near, re.findall(NUMBER, _words(shown)), match.groups()))


def near(shown: str, came: str) -> bool:
    """Return whether two numbers may be the same answer of two engines.

    Decimals, such as scores, differ by 0.02 at most; whole numbers, such as pixels, by 3 or by 2 %.
    """
    limit = 0.02 if "." in shown + came else max(3, 0.02 * int(shown))
    return abs(float(shown) - float(came)) <= limit


def _words(text: str) -> str:
    """Return text without what depends on the width of a terminal: one space for several, no long lines."""
    return " ".join(re.sub(r"([─━=-])\1+", r"\1", text).split())
