"""Who a caller is."""

from __future__ import annotations

import pytest

from utils.edge.guard import address


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        pytest.param(("192.0.2.7", 1), "192.0.2.7", id="IPv4"),
        pytest.param(("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64", id="IPv6, by its network"),
        pytest.param(("a name", 1), "a name", id="not an address"),
        pytest.param(None, "unknown", id="nothing"),
    ],
)
def test_a_caller_without_a_key_is_known_by_address(client, expected):
    assert address({"client": client}) == expected
