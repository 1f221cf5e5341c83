"""An edge with fakes in place of its surroundings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import ASGIApp

from utils.edge.admission import Admission
from utils.edge.limits import Limits
from utils.edge.stack import Access, Site, edge
from utils.inference.shares import RecentCallers
from utils.integrations.adapter import Adapters
from utils.observability.metrics import Counts
from utils.triton.health import Health


class Clock:
    """A clock that tests set."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class FakeCounts(Counts):
    """Metrics that record the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[str, int, str]] = []
        self.in_progress = 0

    def count_answer(self, path: str, status: int, reason: str) -> None:
        self.answers.append((path, status, reason))

    @contextmanager
    def tracked_in_progress(self) -> Iterator[None]:
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1


async def triton_metrics() -> bytes:
    return b"nv_inference_count 7\n"


def make_edge(app: ASGIApp, **options: Any) -> ASGIApp:
    """Return an edge around an application, without keys and limits of rate, with a ready Triton.

    The options are those of `edge`, and the fields of `Site` and `Access`.
    """
    site: dict[str, Any] = {
        "work_paths": frozenset({"/work"}),
        "file_paths": frozenset(),
        "pages": {},
        "adapters": Adapters([], None),  # type: ignore[arg-type]
    }
    parts: dict[str, Any] = {
        "limits": Limits(100, 60, lambda: 60),
        "admission": Admission(1, 100),
        "active": RecentCallers(),
        "health": lambda: Health("ready"),
        "counts": FakeCounts(),
        "triton_metrics": triton_metrics,
    }
    access: dict[str, Any] = {}
    for name, value in options.items():
        if name in parts:
            parts[name] = value
        elif name in Access.__dataclass_fields__:
            access[name] = value
        else:
            site[name] = value
    return edge(app, site=Site(**site), access=Access(**access), **parts)
