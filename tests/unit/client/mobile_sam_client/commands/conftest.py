"""Fixtures that run the command line in this process against a fake service."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from mobile_sam_client._commands import app, connection
from tests.unit.client.mobile_sam_client.commands.fake_sam import FakeSam, picture

Run = Callable[..., Result]


@pytest.fixture
def sam(monkeypatch) -> FakeSam:
    """Fake service that every command uses, whatever its URL."""
    sam = FakeSam()

    def make_client(kind: Any, url: str) -> Any:
        return kind(url, transport=httpx.MockTransport(sam))

    def get(url: str, timeout: float) -> httpx.Response:
        return httpx.Response(200 if sam.ready else 503, text="ready" if sam.ready else "the model\nloads")

    monkeypatch.setattr(connection, "make_client", make_client)
    monkeypatch.setattr(httpx, "get", get)
    return sam


@pytest.fixture
def run(monkeypatch, tmp_path) -> Run:
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    # Wide enough that usage messages are not wrapped.
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)

    return run


@pytest.fixture
def photo(tmp_path) -> bytes:
    """`photo.png` in the folder where commands run."""
    file = picture(1)
    (tmp_path / "photo.png").write_bytes(file)
    return file
