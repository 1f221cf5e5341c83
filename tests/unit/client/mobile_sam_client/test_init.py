"""Public names of the package."""

from __future__ import annotations

import mobile_sam_client


def test_all_is_sorted_and_complete():
    names = mobile_sam_client.__all__
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    for name in names:
        assert getattr(mobile_sam_client, name) is not None
    public = {
        name
        for name, value in vars(mobile_sam_client).items()
        if not name.startswith("_") and not hasattr(value, "__path__")
    }
    assert public == set(names)
