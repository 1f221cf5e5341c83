"""One version of the page's files, the hash that names it, and the HTML that refers to it.

Browsers may keep a file whose URL has the hash, as it never changes. So a second visit is one
request, for the HTML. This also lists all modules that the page imports at its start: a browser
that finds them one import after the other waits for the network as many times.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

INDEX = "index.html"
STYLES = "styles.css"
"""All style sheets of the HTML as one file, which is not in the folder."""
NOT_SERVED = frozenset({INDEX, "deno.json"})
"""Files without a URL of their own."""
HASH_DIGITS = 16
RUNTIME = "onnxruntime/ort.mjs"
"""What the browser makes masks with; optional. The HTML says whether it is there."""
HAS_RUNTIME = '<meta name="onnxruntime">\n'

STYLE_SHEET = re.compile(r'<link rel="stylesheet" href="ui/([^"]+)">\n')
SCRIPT = re.compile(r'<script type="module" src="ui/([^"]+)"')
IMPORT = re.compile(
    r"""^(?:import|export)\b(?:[^"'();]*\bfrom)?\s*"(\.{1,2}/[^"]+)";""", re.MULTILINE
)
"""A static import, or an export from another module."""

FileState = tuple[int, int]
"""Time of the last change in ns, and size in bytes."""


def state_of(status: os.stat_result) -> FileState:
    """Return what changes when a file does."""
    return status.st_mtime_ns, status.st_size


def files_in(folder: Path) -> list[str]:
    """Return the paths in the folder of all files with a URL."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_SERVED)
    return sorted(path.relative_to(folder).as_posix() for path in files)


@dataclass(frozen=True)
class PageVersion:
    """The page's files as they were read.

    version = PageVersion.read(folder)
    version.html  # refers to ui/HASH/app.js
    """

    folder: Path
    hash: str
    """Hexadecimal digits that depend on the paths and contents of all files with a URL."""
    html: bytes
    styles: bytes
    states: Mapping[str, FileState]
    """States of these files and of the HTML by path, taken before they were read."""

    @classmethod
    def read(cls, folder: Path) -> PageVersion:
        """Read the page's files."""
        files = files_in(folder)
        states = {path: state_of((folder / path).stat()) for path in (*files, INDEX)}
        digest = hashlib.sha256()
        modules = {}
        for path in files:
            content = (folder / path).read_bytes()
            digest.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
            if path.endswith(".js"):
                modules[path] = content.decode()
        version = digest.hexdigest()[:HASH_DIGITS]
        html = (folder / INDEX).read_text()
        if RUNTIME in files:
            html = SCRIPT.sub(lambda script: HAS_RUNTIME + script[0], html)
        styles = b"".join((folder / path).read_bytes() for path in STYLE_SHEET.findall(html))
        return cls(folder, version, versioned_html(html, version, modules).encode(), styles, states)

    @property
    def etag(self) -> str:
        """The entity tag of the HTML."""
        return f'"{hashlib.sha256(self.html).hexdigest()[:HASH_DIGITS]}"'

    def is_current(self) -> bool:
        """Return whether no file has changed or gone since. A new one has no URL until the service
        is started again.
        """
        try:
            return all(
                state_of((self.folder / path).stat()) == state
                for path, state in self.states.items()
            )
        except FileNotFoundError:
            return False

    def has(self, path: str, status: os.stat_result) -> bool:
        """Return whether a file is still the one of this version."""
        return self.states.get(path) == state_of(status)


def versioned_html(html: str, version: str, modules: Mapping[str, str]) -> str:
    """Return the HTML with links to the files of a version, one style sheet, and a preload for
    each module that its script needs.

    Args:
        html: the file, which refers to `ui/app.js`.
        version: the folder of the version's files below `ui`.
        modules: sources of all modules by path.
    """
    html = STYLE_SHEET.sub(f'<link rel="stylesheet" href="ui/{STYLES}">\n', html, count=1)
    html = STYLE_SHEET.sub(lambda link: link[0] if link[1] == STYLES else "", html)
    preloads = [
        f'<link rel="modulepreload" href="ui/{path}">\n'
        for script in SCRIPT.findall(html)
        for path in imported_modules(script, modules)
    ]
    html = SCRIPT.sub(lambda script: "".join(preloads) + script[0], html)
    return re.sub(r'((?:href|src)=")ui/', rf"\1ui/{version}/", html)


def imported_modules(script: str, modules: Mapping[str, str]) -> list[str]:
    """Return the paths of all modules that a script imports statically, nearest first."""
    found = [script]
    for path in found:
        for target in IMPORT.findall(modules[path]):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if imported in modules and imported not in found:
                found.append(imported)
    return found[1:]
