"""Start Label Studio with a sample project; this service answers its clicks: `make
try-label-studio`.

Nothing is kept: the next run starts with an empty Label Studio. Both servers end with this process,
however it ends.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import requests

from harness import ROOT, free_ports, seconds_until
from tools.environment import install
from utils.processes import die_with_parent

ENVIRONMENT = ROOT / ".venv-integrations" / "label-studio"
USER, PASSWORD = "you@example.com", "click-a-mask"
LEGACY_TOKEN = "0123456789abcdef0123456789abcdef01234567"  # noqa: S105 - of a server on 127.0.0.1 with sample images
DATABASE = "label_studio.sqlite3"
START_TIMEOUT_S = 400
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
PICTURES = [ROOT / "page" / "samples" / name for name in ("balloons.jpg", "coffee.jpg")]
CONFIG = """<View>
  <Image name="image" value="$image" zoom="true"/>
  <BrushLabels name="brush" toName="image" smart="false">
    <Label value="Object" background="#ff6600"/></BrushLabels>
  <KeyPointLabels name="point" toName="image" smart="true" smartOnly="true">
    <Label value="Object" background="#0066ff"/></KeyPointLabels>
  <RectangleLabels name="box" toName="image" smart="true" smartOnly="true">
    <Label value="Object" background="#0066ff"/></RectangleLabels>
</View>"""


class LabelStudioServer:
    """A running Label Studio, as its first user."""

    def __init__(self, url: str) -> None:
        """Store the server's address."""
        self.url = url
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Token {LEGACY_TOKEN}"

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of a request to the API.

        Raises:
            RuntimeError: Label Studio refused the request.
        """
        response = self._session.request(method, f"{self.url}/api/{path}", timeout=120, **options)
        if not response.ok:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text[:2000]}")
        return response.json() if response.content else None

    def access_token(self) -> str:
        """Create the user's personal access token."""
        return str(self.call("POST", "token/")["token"])

    def project(
        self, title: str, config: str, images: list[Path]
    ) -> tuple[int, list[dict[str, Any]]]:
        """Create a project with images; return its id and its tasks."""
        project = self.call("POST", "projects/", json={"title": title, "label_config": config})[
            "id"
        ]
        for image in images:
            with image.open("rb") as file:
                self.call(
                    "POST", f"projects/{project}/import", files={image.name: (image.name, file)}
                )
        tasks = self.call("GET", "tasks", params={"project": project, "fields": "all"})["tasks"]
        return project, sorted(tasks, key=lambda task: int(task["id"]))

    def connect(self, project: int, service: str, key: str | None = None) -> int:
        """Add a service as a project's model; return the model's id."""
        auth = (
            {"auth_method": "BASIC_AUTH", "basic_auth_user": "key", "basic_auth_pass": key}
            if key
            else {}
        )
        model = {
            "project": project,
            "url": f"{service}/label-studio",
            "title": "MobileSAM",
            "is_interactive": True,
        }
        return int(self.call("POST", "ml/", json={**model, **auth})["id"])


@contextmanager
def label_studio(folder: Path, port: int) -> Iterator[LabelStudioServer]:
    """Run Label Studio on 127.0.0.1 until the end of the block.

    Args:
        folder: folder for its data and its log.
        port: its port.
    """
    settings = {
        "LABEL_STUDIO_BASE_DATA_DIR": str(folder / "data"),
        "LABEL_STUDIO_USERNAME": USER,
        "LABEL_STUDIO_PASSWORD": PASSWORD,
        "LABEL_STUDIO_USER_TOKEN": LEGACY_TOKEN,
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "ML_BLOCK_LOCAL_IP": "false",
        "SSRF_PROTECTION_ENABLED": "false",  # it also applies to the notices to models
        "COLLECT_ANALYTICS": "false",
        "LATEST_VERSION_CHECK": "false",
        "SENTRY_DSN": "",
        "FRONTEND_SENTRY_DSN": "",
    }
    data, migrated = folder / "data", ENVIRONMENT / "migrated.sqlite3"
    data.mkdir()
    if migrated.is_file():  # saves half a minute
        shutil.copy(migrated, data / DATABASE)
    command = [str(ENVIRONMENT / "bin" / "label-studio"), "start", "--no-browser"]
    command += ["--internal-host", "127.0.0.1", "--port", str(port)]
    with (
        (folder / "label-studio.log").open("wb") as log,
        running(command, settings, log) as process,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            wait_for(f"{url}/health", process)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {Path(log.name).read_text()[-2000:]}") from None
        if not migrated.is_file():
            keep_database(data / DATABASE, migrated)
        yield LabelStudioServer(url)


def keep_database(database: Path, copy: Path) -> None:
    """Copy a database that is in use."""
    part = copy.with_name(f"{copy.name}.{os.getpid()}")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(part)) as target:
        source.backup(target)
    part.replace(copy)


@contextmanager
def running(
    command: list[str], settings: dict[str, str], log: IO[bytes] | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a new process group until the block or this process ends."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509  (this process has one thread)
    )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(40)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers.

    Raises:
        RuntimeError: it has ended, or takes too long.
    """

    def answers() -> bool:
        with suppress(requests.RequestException):
            return process.poll() is not None or requests.get(url, timeout=5).ok
        return False

    if seconds_until(answers, START_TIMEOUT_S) > START_TIMEOUT_S or process.poll() is not None:
        raise RuntimeError(f"{url} does not answer")


def end_on_signals() -> None:
    """Leave all blocks on SIGTERM, on SIGHUP (a closed terminal), and when the parent ends."""

    def end(number: int, _: object) -> None:
        for ignored in END_SIGNALS:  # several arrive at once, and must not interrupt the clean-up
            signal.signal(ignored, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in END_SIGNALS:
        signal.signal(number, end)
    die_with_parent(os.getppid())


def main() -> None:
    """Run Label Studio and the service until Ctrl+C.

    The service of a running `make serve` cannot be used: it does not know this Label Studio and its
    token.

    Raises:
        RuntimeError: a server does not start.
    """
    studio_port, port = free_ports(2)
    install(ENVIRONMENT, ["integrations-label-studio"])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="try-label-studio-")))
        print("Label Studio starts, which takes about half a minute.")
        studio = stack.enter_context(label_studio(folder, studio_port))
        settings = {
            "MOBILE_SAM_INTEGRATIONS": "label-studio",
            "MOBILE_SAM_LABEL_STUDIO_URL": studio.url,
            "MOBILE_SAM_LABEL_STUDIO_API_KEY": studio.access_token(),
        }
        service = f"http://127.0.0.1:{port}"
        process = stack.enter_context(running(["make", "serve", f"PORT={port}"], settings, None))
        wait_for(f"{service}/readyz", process)
        project, tasks = studio.project("Sample", CONFIG, PICTURES)
        studio.connect(project, service)
        print(f"\nLabel Studio: {studio.url}/projects/{project}/data?task={tasks[0]['id']}")
        print(f"user: {USER}   password: {PASSWORD}")
        print(
            "Switch on Auto-Annotation, choose a blue Object and the tool with the spark, click."
            " Ctrl+C ends."
        )
        process.wait()


if __name__ == "__main__":
    end_on_signals()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # between the lines of the servers
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        sys.exit(f"error: {error}")
