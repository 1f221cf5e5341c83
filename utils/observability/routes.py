"""Paths as metrics, traces and the log name them: those that end with an id are one path."""

from starlette.types import Scope

JOB, EMBEDDING = "/embed/{job}", "/embeddings/{image_id}"
"""What stands for the paths of all jobs, and of all embeddings."""


def route_of(scope: Scope) -> str:
    """Return the path of a request, or the one that stands for all that differ by an id at their
    end.
    """
    path: str = scope["path"]
    return next(
        (route for route in (JOB, EMBEDDING) if path.startswith(route.partition("{")[0])), path
    )
