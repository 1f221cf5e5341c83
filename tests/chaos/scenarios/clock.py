"""Clock jumps under the running service, with libfaketime."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.control_client import ControlClient
from tests.chaos.figures import Figure, Start, not_run
from tests.chaos.processes import readiness_over

LIBRARY = "faketime/libfaketimeMT.so.1"
"""Library of Debian's package `faketime`."""
STEPS = ("+3600", "-86400", "+300000000", "-1", "-3600", "+0")
"""Offsets of the clock in seconds: an hour ahead, a day back, ten years ahead, and so on."""


def moved_clock(start: Start, each_s: float = 5) -> Iterator[Figure]:
    """Let the wall clock jump; the monotonic clock is not affected."""
    name = f"the clock set {len(STEPS)} times"
    libraries = [
        path
        for folder in (Path("/usr/lib"), Path("/usr/local/lib"))
        for path in folder.glob(f"**/{LIBRARY}")
    ]
    if not libraries:
        yield not_run(name, f"{LIBRARY} is missing (Debian: faketime)")
        return
    with TemporaryDirectory() as folder:
        setting = Path(folder) / "time"
        setting.write_text("+0")
        faked = {
            "LD_PRELOAD": str(libraries[0]),
            "FAKETIME_TIMESTAMP_FILE": str(setting),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        with start(**faked) as server:
            control = ControlClient(server)
            ready = list[bool]()
            with control.clicking():
                for step in STEPS:
                    setting.write_text(step)
                    ready += readiness_over(server, each_s)
            yield from control.figures(name)
            yield Figure(name, "probes without a 200", ready.count(False), 0)
            yield Figure(
                name, "years that the log shows", len(_years(server.log)), 2, at_least=True
            )


def _years(log: Path) -> set[str]:
    """Return the years of a log's lines; several show that the clock really jumped."""
    return {line[:4] for line in log.read_text(errors="replace").splitlines() if line[:2] == "20"}
