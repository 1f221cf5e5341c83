"""Work that another part of the service may end early, with an error for the caller."""

import asyncio
from typing import Any, cast

from utils.errors import STOPPING_DETAIL, Overloaded, ServiceError, Stopping

LOST_DETAIL = "this request was ended because other callers needed its room; retry later"


class Ending:
    """Context of a task's work, which ends with an error as soon as another part of the service
    asks for it.
    """

    def __init__(self, stopping_detail: str = STOPPING_DETAIL) -> None:
        self.stopping_detail = stopping_detail
        """What the caller is told if the service stops."""
        self.error: ServiceError | None = None
        self._is_over = False
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())

    def __enter__(self) -> "Ending":
        """Begin the work."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raise the error with which the work was ended, if it was."""
        self._is_over = True
        if kind is asyncio.CancelledError and self.error:
            raise self.error from None

    def lose(self) -> None:
        """End the request because another caller gets its room."""
        self._end(Overloaded(LOST_DETAIL))

    def stop(self) -> None:
        """End the request because the service stops."""
        self._end(Stopping(self.stopping_detail))

    def _end(self, error: ServiceError) -> None:
        if not (self._is_over or self.error):
            self.error = error
            self._task.cancel()
