"""Fenced code blocks of the documentation, run as a reader would run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from harness import ROOT
from tests.skips import require

URL = "http://127.0.0.1:3000"
COMMANDS = {
    "python": [sys.executable, "-c"],
    "sh": ["bash", "-eo", "pipefail", "-c"],
    "javascript": ["deno", "run", "--allow-net", "--allow-read", "--allow-write", "click.mjs"],
    "java": ["java", "Click.java"],
    "go": ["go", "run", "click.go"],
}
"""Commands that run a block, by language, to which a file name or, after `-c`, the code is the
last argument."""
OUTPUT_LANGUAGES = ("json", "text")
NOT_RUN = re.compile(r"<!-- not run: (.+) -->\s*$")
MAKE = re.compile(r'^\s*(?:#.*|(?:[A-Z_]+=(?:"[^"]*"|\S*) +)*make\b.*)?$')
"""A line that only runs `make`, a comment, or an empty line."""
COPIED_FOLDERS = ("client", "examples")
"""Folders with programs that the pages' commands run."""
SAMPLES = Path("page/samples")
"""Sample pictures in the repository."""
GRID = re.compile(r"(?<=--points-per-side )\d+")
NUMBER = r"(\d+(?:\.\d+)?)"
SOMETIMES = {"encode_s", "timeout_s"}
"""Members of JSON objects that are not compared: one that only the first answer about an image
has, and the time limit, which depends on the machine."""
VARYING = ("engine", "counts", "point_coords")
"""Members of JSON objects that differ between engines: the engine's name, run lengths, and the
click of a mask."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a documentation page."""

    page: str
    line: int
    language: str
    code: str
    not_run: str
    """Reason on the page for not running the block; empty without one."""
    shows: Block | None = None
    """The block with this block's expected output."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def only_make(self) -> bool:
        """Return whether the block only runs `make`."""
        return self.language == "sh" and all(MAKE.match(line) for line in self.code.splitlines())

    @property
    def program(self) -> str | None:
        """Return the path of the program that runs the block, or None if it is not installed."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return shutil.which(COMMANDS[self.language][0], path=path)

    @property
    def runs(self) -> bool:
        return self.language in COMMANDS and not self.not_run and not self.only_make


def pages() -> list[str]:
    """Return the paths of all documentation pages, relative to the repository root."""
    folders = (
        ROOT / "client",
        ROOT / "docs",
        ROOT / "docs" / "integrations",
        ROOT / "examples",
        ROOT / "sam_onnx" / "builtin",
    )
    found = [
        ROOT / "README.md",
        *(page for folder in folders for page in sorted(folder.glob("*.md"))),
    ]
    found += sorted((ROOT / "examples").glob("*/README.md"))
    return [str(page.relative_to(ROOT)) for page in found]


def blocks(page: str, text: str) -> list[Block]:
    """Return the blocks of a page; a block of expected output is attached to its code block and
    not listed itself.
    """
    found: list[Block] = []
    previous = None
    for token in MarkdownIt().parse(text):
        if token.type == "fence" and token.map:
            reason = (
                NOT_RUN.search(previous.content)
                if previous and previous.type == "html_block"
                else None
            )
            block = Block(
                page, token.map[0] + 1, token.info, token.content, reason[1] if reason else ""
            )
            follows = (
                previous is not None
                and previous.type == "fence"
                and found[-1].runs
                and not found[-1].shows
            )
            if follows and block.language in OUTPUT_LANGUAGES:
                found[-1] = replace(found[-1], shows=block)
            else:
                found.append(block)
        previous = token
    return found


class Reader:
    """A copy of the repository's clients, examples and sample pictures in which blocks of pages
    run.

    The default service address in pages and clients is replaced by that of a running service.
    """

    def __init__(self, folder: Path, url: str, pictures: int | None = None) -> None:
        """Copy the files.

        Args:
            folder: an empty folder.
            url: address of the running service.
            pictures: number of sample pictures; None for all.
        """
        self.folder, self._url = folder, url
        (folder / ".venv").symlink_to(sys.prefix)
        for name in COPIED_FOLDERS:
            for source in (ROOT / name).rglob("*.py"):
                copy = folder / source.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(source.read_text().replace(URL, url))
        (folder / SAMPLES).mkdir(parents=True)
        for picture in sorted((ROOT / SAMPLES).iterdir())[:pictures]:
            shutil.copy(picture, folder / SAMPLES)

    def run(self, block: Block) -> str:
        """Run a block and return what it prints; fail unless it exits with status 0, or skip the
        test without curl.

        Commands whose output the page does not show have a small grid of clicks, so that they take
        less time.
        """
        code = block.code.replace(URL, self._url)
        if block.language == "sh" and "curl " in code:
            require("curl")
        if not block.shows:
            code = GRID.sub("2", code)
        arguments = COMMANDS[block.language][1:]
        if arguments[-1] == "-c":
            arguments = [*arguments, code]
        else:
            (self.folder / arguments[-1]).write_text(code)
        return self.run_command([str(block.program), *arguments], str(block))

    def run_command(self, command: Sequence[str], name: str) -> str:
        """Run a command in the folder and return what it prints; fail unless it exits with status
        0.

        Args:
            command: program and arguments.
            name: name of the command in the failure message.
        """
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MOBILE_SAM_")
        }
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**environment, "PYTHONPATH": str(self.folder / "client"), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, (
            f"{name} exited with status {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout


def matches(shown: Block, printed: str) -> bool:
    """Return whether output agrees with what a page shows, within the differences between engines.

    White space is ignored, … matches anything, and numbers are compared by `near`. A JSON list on a
    page may be only the beginning; of `VARYING` members only the type is compared.
    """
    if shown.language == "json":
        return same_json(json.loads(shown.code), json.loads(printed))
    return same_text(shown.code, printed)


def same_json(shown: Any, actual: Any) -> bool:
    """Return whether a JSON value agrees with what a page shows, by the rules of `matches`."""
    if isinstance(shown, dict) and isinstance(actual, dict):
        names = shown.keys() - SOMETIMES
        return names == actual.keys() - SOMETIMES and all(
            type(shown[name]) is type(actual[name])
            if name in VARYING
            else same_json(shown[name], actual[name])
            for name in names
        )
    if isinstance(shown, list) and isinstance(actual, list):
        return len(shown) <= len(actual) and all(map(same_json, shown, actual))
    if isinstance(shown, str) and isinstance(actual, str):
        return re.fullmatch(re.escape(shown).replace("…", ".*"), actual, re.DOTALL) is not None
    if isinstance(shown, bool) or isinstance(actual, bool) or shown is None or actual is None:
        return shown is actual
    return (
        isinstance(shown, int | float)
        and isinstance(actual, int | float)
        and near(str(shown), str(actual))
    )


def same_text(shown: str, actual: str) -> bool:
    """Return whether a text agrees with what a page shows, by the rules of `matches`."""
    pattern = re.sub(r"\d+(\\\.\d+)?", lambda _: NUMBER, re.escape(_words(shown))).replace(
        "…", ".*?"
    )
    match = re.fullmatch(pattern, _words(actual), re.DOTALL)
    return match is not None and all(map(near, re.findall(NUMBER, _words(shown)), match.groups()))


def near(shown: str, actual: str) -> bool:
    """Return whether two numbers differ by no more than two engines do.

    Decimals, such as scores, differ by 0.02 at most; whole numbers, such as pixels, by 3 or by 2 %.
    """
    limit = 0.02 if "." in shown + actual else max(3, 0.02 * int(shown))
    return abs(float(shown) - float(actual)) <= limit


def _words(text: str) -> str:
    """Return text independent of the terminal's width: single spaces, shortened rules; without
    `SOMETIMES`.
    """
    text = re.sub(rf',"({"|".join(SOMETIMES)})":[\d.]+', "", text)
    return " ".join(re.sub(r"([─━=-])\1+", r"\1", text).split())
