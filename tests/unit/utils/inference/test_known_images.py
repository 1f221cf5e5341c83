"""KnownImages that several processes share."""

import hashlib

import pytest

from utils.inference.known_images import SLOT_BYTES, SLOTS, KnownImages


def ids(count: int) -> list[str]:
    return [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]


def test_image_is_known_to_all_workers_and_after_a_restart_but_to_its_owner_only(tmp_path):
    one, other = (KnownImages(tmp_path / "known") for _ in range(2))
    first, second = ids(2)
    assert not one.has("", first)
    one.add("", first)
    other.add("alice", second)
    for table in (one, other, KnownImages(tmp_path / "known")):
        assert table.has("", first)
        assert table.has("alice", second)
        assert not table.has("bob", second)
        assert not table.has("", second)


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_any_image_may_be_known_if_the_file_cannot_be_used(tmp_path, folder):
    (tmp_path / "file").touch()
    table = KnownImages(tmp_path / folder / "known")
    (image_id,) = ids(1)
    table.add("", image_id)
    assert table.has("", image_id)


def test_file_appears_with_its_folder(tmp_path):
    table = KnownImages(tmp_path / "later" / "known")
    first, second = ids(2)
    table.add("", first)
    (tmp_path / "later").mkdir()
    assert not table.has("", first)
    table.add("", second)
    assert table.has("", second)


def test_table_is_bounded_and_loses_few_of_many_images(tmp_path):
    table = KnownImages(tmp_path / "known")
    images = ids(10_000)
    for image_id in images:
        table.add("", image_id)
    assert (tmp_path / "known").stat().st_size <= SLOTS * SLOT_BYTES
    lost = [table.has("", image_id) for image_id in images].count(False)
    assert 0 < lost < 0.04 * len(images)
