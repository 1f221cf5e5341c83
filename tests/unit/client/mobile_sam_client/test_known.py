"""Map from image files to ids."""

from __future__ import annotations

from mobile_sam_client._known import KnownImages


def test_latest_id_of_a_file_is_returned():
    known = KnownImages()
    assert known.id_of("a") is None
    known.remember("a", "1")
    known.remember("a", "2")
    assert known.id_of("a") == "2"


def test_least_recently_used_file_is_dropped():
    known = KnownImages(2)
    known.remember("a", "1")
    known.remember("b", "2")
    assert known.id_of("a") == "1"
    known.remember("c", "3")
    assert [known.id_of(name) for name in "abc"] == ["1", None, "3"]
