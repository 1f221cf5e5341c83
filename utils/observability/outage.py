"""Outages of what the service can do without for a while, each of which is logged once."""

import logging

from utils.observability.logs import logger


class Outage:
    """Outage of something that is asked for again and again: its begin and its end are logged,
    not each failure.
    """

    def __init__(self, ended: str, level: int = logging.ERROR) -> None:
        """Store what is logged at the end, and the level of the begin."""
        self._ended, self._level = ended, level
        self.lasts = False

    def begin(self, line: str, error: BaseException | None = None) -> None:
        """Log the line, and the traceback of an error, unless the outage lasts already."""
        if not self.lasts:
            logger.log(self._level, "%s", line, exc_info=error)
        self.lasts = True

    def end(self) -> None:
        """Log the end of an outage, if there is one."""
        if self.lasts:
            logger.info("%s", self._ended)
        self.lasts = False
