"""Fixtures that run the command line in this process against a fake service."""

import signal
from collections.abc import Callable, Iterator

import httpx
import pytest
from typer.testing import CliRunner, Result

from mobile_sam_client._commands import app, connection
from tests.unit.client.mobile_sam_client.commands.fake_sam import FakeSam, picture
from tests.unit.client.mobile_sam_client.fake_service import problem_reply

Run = Callable[..., Result]


@pytest.fixture
def sam(monkeypatch) -> FakeSam:
    """Fake service that every command uses, whatever its URL."""
    sam = FakeSam()

    def get(url: str, timeout: float) -> httpx.Response:
        return httpx.Response(
            200 if sam.ready else 503, text="ready" if sam.ready else "the model\nloads"
        )

    monkeypatch.setattr(
        connection, "make_client", lambda kind, url: kind(url, transport=httpx.MockTransport(sam))
    )
    monkeypatch.setattr(httpx, "get", get)
    return sam


@pytest.fixture
def run(monkeypatch, tmp_path) -> Run:
    """Run a command in an empty folder: its words, and arguments that contain spaces or are no
    text.
    """
    monkeypatch.chdir(tmp_path)
    # Wide enough that usage messages are not wrapped.
    monkeypatch.setenv("COLUMNS", "300")

    def run(words: str, *more: object, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(
            app, [*words.split(), *map(str, more)], input=stdin, catch_exceptions=False
        )

    return run


@pytest.fixture
def photo(tmp_path) -> bytes:
    """`photo.png` in the folder where commands run."""
    file = picture(1)
    (tmp_path / "photo.png").write_bytes(file)
    return file


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[httpx.Request], httpx.Response]]:
    """A reply for `sam` that first does once what Ctrl-C makes Python do: call the handler of
    SIGINT.

    The process gets no real signal, which at times ended a worker of xdist.
    """
    # Processes started in a shell's background ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    pressed: list[bool] = []

    def reply(request: httpx.Request) -> httpx.Response:
        if not pressed:  # a second Ctrl-C ends the command at any point
            pressed.append(True)
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, None)
        return problem_reply(503)(request)

    yield reply
    signal.signal(signal.SIGINT, before)
