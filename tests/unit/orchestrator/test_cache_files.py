"""Files of the cache: which of them make room, and which are overwritten."""

import os

import pytest

from orchestrator.cache_files import PARTIAL, SPARE, SPARE_SHARE, CacheFiles
from tests.unit.orchestrator.test_cache import ENTRY_BYTES, files, total


@pytest.fixture
def looks(monkeypatch) -> list[int]:
    """Return a list that gets the bytes left in a folder whenever a cache has looked at its
    files.
    """
    evict, left = CacheFiles._evict, []

    def observed(files: CacheFiles, size: int, caller: bytes) -> int:
        left.append(evict(files, size, caller))
        return left[-1]

    monkeypatch.setattr(CacheFiles, "_evict", observed)
    return left


def test_files_are_looked_at_again_only_when_others_have_changed_the_folder(
    open_cache, entries, folder, looks
):
    one, other = open_cache(), open_cache()
    for seed, cache in enumerate([one, other, one, other]):
        cache.put(entries.name(seed), entries.make(seed))
    assert looks == [0]
    abandoned = folder / f"dead{PARTIAL}"
    abandoned.touch()
    one.put(entries.name(5), entries.make(5))
    assert looks == [0, 4 * ENTRY_BYTES]
    assert not abandoned.exists()
    (folder / "locks" / "room").write_bytes(b"damaged")
    one.put(entries.name(6), entries.make(6))
    assert looks[2:] == [5 * ENTRY_BYTES]


def test_full_folder_loses_some_spare_entries_at_once(open_cache, entries, folder, looks):
    room = 2 * SPARE_SHARE
    cache = open_cache(max_bytes=room * ENTRY_BYTES)
    for seed in range(room + 6):
        cache.put(entries.name(seed), entries.make(seed))
        assert total(folder) <= cache.max_bytes
    # Two of the six that did not fit made room, each for three.
    assert looks == [0, *[(room - 3) * ENTRY_BYTES] * 2]
    assert not list(folder.glob(f"{entries.name(0)}*"))


def test_entry_overwrites_an_evicted_one_and_is_served_whole(open_cache, entries, folder):
    cache = open_cache(max_bytes=2 * ENTRY_BYTES)
    for seed in (1, 2):
        cache.put(entries.name(seed), entries.make(seed))
    evicted = files(folder)[0].stat().st_ino
    os.utime(files(folder)[0], (0, 0))
    # A shorter entry leaves nothing of the longer one.
    cache.put(entries.name(3), entries.make(3, file_bytes=1))
    (path,) = folder.glob(f"{entries.name(3)}*")
    assert path.stat().st_ino == evicted
    assert entries.same(open_cache().get(entries.name(3)), entries.make(3, file_bytes=1))
    assert files(folder / SPARE) == files(folder, PARTIAL) == []


def test_spare_files_count_towards_the_limit(open_cache, entries, folder):
    cache = open_cache(max_bytes=SPARE_SHARE * ENTRY_BYTES)
    for seed in range(SPARE_SHARE + 1):
        cache.put(entries.name(seed), entries.make(seed))
    assert len(files(folder / SPARE)) == 1
    larger = entries.make(100, file_bytes=100 + ENTRY_BYTES)
    cache.put(entries.name(100), larger)
    assert total(folder) <= cache.max_bytes
    assert entries.same(open_cache().get(entries.name(100)), larger)


def test_entry_that_is_overwritten_while_it_is_read_is_not_served_as_another_image(
    open_cache, entries, folder, warnings, monkeypatch
):
    open_cache(max_bytes=ENTRY_BYTES).put(entries.name(1), entries.make(1))

    def slow_read(path):
        """Read after another process has evicted the entry, and written another one over it."""
        monkeypatch.undo()
        with path.open("rb") as file:
            open_cache(max_bytes=ENTRY_BYTES).put(entries.name(2), entries.make(2))
            read.append(file.read())
        return read[0]

    read: list[bytes] = []
    monkeypatch.setattr(type(folder), "read_bytes", slow_read)
    assert open_cache().get(entries.name(1)) is None
    assert read == [entries.file(2)]
    assert warnings == []
    assert entries.same(open_cache().get(entries.name(2)), entries.make(2))
