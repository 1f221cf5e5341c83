"""The grossest faults of language in names and docstrings; the rest is for reviewers."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODIFIERS = {"Of", "By", "Whose", "What", "Whether", "Where", "Who", "Why", "How", "Which", "That"}
"""First words of docstrings that only modify the name: alone in a tooltip they say nothing."""
SUPERLATIVE = re.compile(r"(^|_)(LEAST|MOST)(_|$)")
DURATION = re.compile(
    r"(TIMEOUT|PAUSE|DELAY|INTERVAL|PERIOD|EVERY|WAIT|DEADLINE|_AGE|GRACE|PATIENCE|SECONDS|TIME|DURATION|AFTER|LIFETIME)$"
)
SOURCES = sorted(
    path
    for name in subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    if (path := Path(name)) and (ROOT / path).is_file() and not (ROOT / path).is_symlink()
)


def docstring_faults(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if text.split(" ")[0].rstrip(".,:") in MODIFIERS:
                yield f"{getattr(node, 'name', 'module')}: {text.splitlines()[0]}"


def constant_faults(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        number = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float)
        for name in names:
            if SUPERLATIVE.search(name):
                yield f"{name}: MAX_ or MIN_"
            if number and DURATION.search(name):
                yield f"{name}: the unit, as in {name}_S"


def test_docstrings_and_constants_read_as_english():
    trees = {path: ast.parse((ROOT / path).read_text()) for path in SOURCES}
    found = {str(path): [*docstring_faults(tree), *constant_faults(tree)] for path, tree in trees.items()}
    assert {path: faults for path, faults in found.items() if faults} == {}
