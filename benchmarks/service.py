"""The service and other servers of a measurement."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from harness import ROOT, Server, launch_server
from harness.server import STOP_TIMEOUT_S, launch, until_end

OFFICIAL, BUILTIN = "official", "builtin"
"""Weights of the measurements."""
CACHE = ROOT / ".cache"


def running(
    repository: Path, engine: str = "auto", **settings: str
) -> AbstractContextManager[Server]:
    """Run the service of this checkout with an empty embedding cache.

    Args:
        repository: the model repository, as returned by `prepare`.
        engine: as in `MOBILE_SAM_ENGINE`; services of different engines may run at once.
        settings: environment variables.
    """
    shutil.rmtree(folder := CACHE / f"benchmark-service-{engine}", ignore_errors=True)
    settings |= {"MOBILE_SAM_MODEL_REPOSITORY": str(repository), "MOBILE_SAM_ENGINE": engine}
    return _until_gone(launch_server(folder / "log", port=None, **settings))


def running_checkout(
    root: Path, repository: Path, folder: Path, **settings: str
) -> AbstractContextManager[Server]:
    """Run the service of a checkout in a folder, with this environment's packages.

    Args:
        root: folder of the checkout.
        repository: the model repository, as the checkout's own `prepare` makes it.
        folder: folder of its caches and its log.
        settings: environment variables.
    """
    settings |= {
        "MOBILE_SAM_MODEL_REPOSITORY": str(repository),
        "MOBILE_SAM_CACHE_DIR": str(folder),
    }
    return _until_gone(
        launch_server(folder / "log", port=None, wrapper=["env", f"--chdir={root}"], **settings)
    )


def serving(
    name: str, command: Sequence[str], environment: Mapping[str, str]
) -> AbstractContextManager[Server]:
    """Run another server, with a log of this name; `command` as for `launch`, `environment`
    beside this process's.
    """
    return _until_gone(launch(CACHE / f"benchmark-{name}.log", command, None, **environment))


@contextmanager
def _until_gone(server: Server) -> Iterator[Server]:
    """Run a server until the block ends, and wait for its exit: the next one uses the same files
    and cores.
    """
    with until_end(server):
        yield server
    server.process.wait(STOP_TIMEOUT_S)
