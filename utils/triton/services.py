"""Running services of this machine, and which model repositories they serve.

python -m utils.triton.services FOLDER      print which services use a model repository
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from utils.triton.run import PREFIX, SHARED_MEMORY, is_locked

RECORD = "service.json"
"""Name of the record in a service's run folder."""


@dataclass(frozen=True)
class Service:
    """A running service, as it was started."""

    process: int
    """Process id of its first process, in the container that it runs in."""
    url: str
    repository: str
    """Resolved path of its model repository."""
    weights: str
    """Name of the weights that it started with."""
    control_mode: str
    """Triton's model control mode."""

    def __str__(self) -> str:
        until = {
            "none": "until it is started again",
            "explicit": "until an operator loads others, or it is started again",
            "poll": "until Triton finds other files in the folder, within 15 s",
        }[self.control_mode]
        who = f"the service at {self.url} (process {self.process})"
        return f"{who} uses the same folder, with {self.weights} weights {until}"


def announce(folder: Path, service: Service) -> None:
    """Write the record of a service to its run folder."""
    fresh = folder / f"{RECORD}.new"
    fresh.write_text(json.dumps(asdict(service)), encoding="utf-8")
    fresh.replace(folder / RECORD)


def users_of(repository: Path, memory: Path = SHARED_MEMORY) -> list[str]:
    """Return a line for each running service that uses a model repository."""
    services = [
        service for service in _running(memory) if service.repository == str(repository.resolve())
    ]
    return [str(service) for service in sorted(services, key=lambda service: service.url)]


def _running(memory: Path) -> Iterator[Service]:
    for record in memory.glob(f"{PREFIX}*/{RECORD}"):
        try:
            service = Service(**json.loads(record.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # it has just ended, or is another release's
            continue
        if is_locked(record.parent):
            yield service


def main(arguments: Sequence[str]) -> None:
    """Print which services use a model repository.

    Raises:
        SystemExit: the arguments are wrong (status 2).
    """
    if len(arguments) != 1:
        print("usage: python -m utils.triton.services FOLDER", file=sys.stderr)
        sys.exit(2)
    for line in users_of(Path(arguments[0])):
        print(f"note: {line}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
