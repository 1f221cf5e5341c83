"""Identification of callers by address."""

import pytest

from utils.observability.context import address


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        pytest.param(("192.0.2.7", 1), "192.0.2.7", id="IPv4"),
        pytest.param(("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64", id="IPv6-network"),
        pytest.param(("a name", 1), "a name", id="not-an-address"),
        pytest.param(None, "unknown", id="none"),
    ],
)
def test_caller_is_identified_by_address_or_network(client, expected):
    assert address({"client": client}) == expected
