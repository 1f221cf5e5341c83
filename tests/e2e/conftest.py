"""The running service that end-to-end tests share."""

import pytest

from harness import Server


@pytest.fixture(scope="session")
def server(builtin_server: Server) -> Server:
    """Return the service with default settings, for tests that leave it intact."""
    return builtin_server
