"""Ids that are remembered."""

from __future__ import annotations

from mobile_sam_client._known import KnownImages


def test_ids_are_known_by_the_file():
    known = KnownImages()
    assert known.id_of("a") is None
    known.remember("a", "1")
    known.remember("a", "2")
    assert known.id_of("a") == "2"


def test_what_was_not_used_for_longest_is_forgotten_first():
    known = KnownImages(2)
    known.remember("a", "1")
    known.remember("b", "2")
    assert known.id_of("a") == "1"
    known.remember("c", "3")
    assert [known.id_of(name) for name in "abc"] == ["1", None, "3"]
