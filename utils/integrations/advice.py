"""Texts of errors for the users of annotation tools, who set no field of a request."""

from dataclasses import replace

from utils.errors import Problem

SMALLER = (
    "use a smaller image, or ask the operator of this service to raise MOBILE_SAM_MAX_BODY_BYTES"
)
"""Advice about a file that has too many bytes."""
ADVICE = {
    "answer-too-large": (
        "the masks are too large for one answer: use fewer prompts, or a smaller image"
    ),
    "too-much-work": "the masks would take too long: use fewer prompts, or a smaller image",
    "inference-timeout": "no answer in time: try again later, or use a smaller image",
}
"""Texts by slug that replace those about fields of the service's own requests."""


def in_tools_words(problem: Problem) -> Problem:
    """Return a problem without advice that the users of tools cannot follow."""
    if problem.slug == "body-too-large":
        return replace(problem, detail=f"{problem.detail}: {SMALLER}")
    if problem.slug in ADVICE:
        return replace(problem, detail=ADVICE[problem.slug], errors=())
    return problem
