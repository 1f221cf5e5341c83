"""Fixtures for the tests of `utils`, and event loops for the tests that are coroutine functions."""

import asyncio
import inspect
import logging

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(autouse=True)
def _no_earlier_errors(monkeypatch):
    """Forget the errors of other tests, which would be counted together with the test's own."""
    monkeypatch.setattr("utils.observability.logs.ERROR_LOG._windows", {})


@pytest.fixture
def log(caplog):
    """Return a function that returns level and text of the service's log lines."""
    caplog.set_level(logging.INFO, "bentoml.mobile_sam")
    return lambda: [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "bentoml.mobile_sam"
    ]
