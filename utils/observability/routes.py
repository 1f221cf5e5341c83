"""Paths as metrics, traces and the log name them: those that end with an id are one path, and the
page's files have no version.
"""

import re

from starlette.types import Scope

JOB, EMBEDDING = "/embed/{job}", "/embeddings/{image_id}"
"""What stands for the paths of all jobs, and of all embeddings."""
PAGE = "/ui"
PAGE_FILE = re.compile(rf"{PAGE}/([0-9a-f]{{16}})/(.+)", re.DOTALL)
"""A file of the page below the hash of a version."""


def route_of(scope: Scope) -> str:
    """Return the path of a request, or the one that stands for all that differ by an id at their
    end, or by the version of the page.
    """
    path: str = scope["path"]
    if file := PAGE_FILE.fullmatch(path):
        return f"{PAGE}/{file[2]}"
    return next(
        (route for route in (JOB, EMBEDDING) if path.startswith(route.partition("{")[0])), path
    )


def page_version_of(scope: Scope) -> str | None:
    """Return the hash in the path of a file of the page, or None if it has none."""
    file = PAGE_FILE.fullmatch(scope["path"])
    return file[1] if file else None
