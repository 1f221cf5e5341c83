"""Disk cache of embeddings: sharing, limits, damaged files and locks."""

import contextlib
import errno
import os
import random
import resource
import struct
import tempfile
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator import cache as cache_module
from orchestrator import cache_files
from orchestrator.cache import (
    HEADER,
    MAGIC,
    CachedImage,
    EmbeddingCache,
    InvalidEntry,
    Layout,
    unpack,
    with_crops,
)
from orchestrator.cache_files import PARTIAL, SPARE, SUFFIX
from tests.unit.orchestrator.conftest import WEIGHTS, Entries

LAYOUT = Layout(WEIGHTS)
ENTRY_BYTES = HEADER.size + LAYOUT.nbytes + 100
"""Size of the file of an entry of the fixture `entries`."""


def files(folder: Path, suffix: str = SUFFIX) -> list[Path]:
    return sorted(path for path in folder.glob(f"*{suffix}") if path.is_file())


def total(folder: Path) -> int:
    """Return the bytes of all files: entries, those that are written or evicted."""
    found = [*files(folder), *files(folder, PARTIAL), *files(folder / SPARE)]
    return sum(path.stat().st_size for path in found)


def test_entry_is_returned_as_stored_also_after_a_restart_and_when_overwritten(
    open_cache, entries, folder
):
    cache = open_cache()
    assert cache.get(entries.name(1)) is None
    for entry in (entries.make(1, file_bytes=0), entries.make(2, file_bytes=12_345)):
        cache.put(entries.name(1), entry)
        assert entries.same(cache.get(entries.name(1)), entry)
        assert entries.same(open_cache().get(entries.name(1)), entry)
    assert cache.get(entries.name(2)) is None
    assert len(files(folder)) == 1


@pytest.mark.parametrize("orientation", [1, 8])
@pytest.mark.parametrize("sample_range", [None, (0, 65_535), (0, 1), (65_534, 65_535)])
def test_entry_keeps_orientation_and_range_of_its_image(
    open_cache, entries, orientation, sample_range
):
    entry = replace(entries.make(1), orientation=orientation, sample_range=sample_range)
    open_cache().put(entries.name(1), entry)
    assert entries.same(open_cache().get(entries.name(1)), entry)


def older_entry(entry: CachedImage) -> bytes:
    """Return an entry in the layout before the current one, whose size may follow another
    orientation.
    """
    header = struct.Struct("<8sIIQ8s16sQI4x")
    body = entry.embedding["image_embeddings"].tobytes() + bytes(entry.file)
    fields = (
        b"MSAMEMB4",
        *entry.size_hw,
        len(entry.file),
        bytes(8),
        LAYOUT.weights.encode(),
        LAYOUT.nbytes,
    )
    checksum = zlib.crc32(body, zlib.crc32(header.pack(*fields, 0)))
    return header.pack(*fields, checksum) + body


def test_entry_of_an_older_layout_is_never_used_and_is_replaced(
    open_cache, entries, folder, warnings
):
    entry = entries.make(1)
    open_cache().put(entries.name(1), entry)
    (path,) = files(folder)
    path.write_bytes(older_entry(entry))
    assert open_cache().image_file(entries.name(1)) is None
    assert open_cache().get(entries.name(1)) is None
    assert "got b'MSAMEMB4'" in warnings[0]
    open_cache().put(entries.name(1), entry)
    assert entries.same(open_cache().get(entries.name(1)), entry)


@pytest.mark.parametrize(
    "damage",
    [{"orientation": 0}, {"orientation": 9}, {"sample_range": (5, 5)}, {"sample_range": (6, 5)}],
    ids=str,
)
def test_entry_with_an_orientation_or_a_range_that_no_image_has_is_removed(
    open_cache, entries, warnings, damage
):
    open_cache().put(entries.name(1), replace(entries.make(1), **damage))
    assert open_cache().get(entries.name(1)) is None
    assert "expected an orientation of 1 to 8 and a range" in warnings[0]


def test_least_recently_used_entry_is_evicted_first(open_cache, entries, folder):
    cache = open_cache(max_bytes=3 * ENTRY_BYTES)
    for seed in (1, 2, 3):
        cache.put(entries.name(seed), entries.make(seed))
        (path,) = folder.glob(f"{entries.name(seed)}*")
        os.utime(path, (seed, seed))
    for user, seed, left in ((cache, 4, [1, 3, 4]), (open_cache(), 5, [1, 4, 5])):
        assert user.get(entries.name(1)) is not None
        cache.put(entries.name(seed), entries.make(seed))
        for reader in (cache, open_cache()):
            assert [seed for seed in range(9) if reader.get(entries.name(seed))] == left
        os.utime(next(folder.glob(f"{entries.name(left[1])}*")), (seed, seed))


def fill(
    cache: EmbeddingCache, entries: Entries, folder: Path, stored: list[tuple[int, str]]
) -> None:
    """Store entries of callers; each is used later than those before."""
    for used_at, (seed, caller) in enumerate(stored):
        cache.put(entries.name(seed), entries.make(seed), caller)
        (path,) = folder.glob(f"{entries.name(seed)}*")
        os.utime(path, (used_at, used_at))


def kept(folder: Path, entries: Entries) -> list[int]:
    return [seed for seed in range(30) if list(folder.glob(f"{entries.name(seed)}*"))]


FLOOD = [(seed, "mallory") for seed in range(10, 30)]
ALICE_HAS_MANY = [(1, "bob"), (2, "alice"), (3, "alice"), (4, "alice"), (5, "carol")]


@pytest.mark.parametrize(
    ("room", "case"),
    [
        pytest.param(
            6,
            ([(1, "alice"), (2, "alice"), (3, "bob"), *FLOOD], [1, 2, 3, 27, 28, 29]),
            id="below a share",
        ),
        pytest.param(4, (ALICE_HAS_MANY, [1, 3, 4, 5]), id="new caller"),
        pytest.param(
            3,
            ([(seed, f"caller {seed}") for seed in range(5)], [2, 3, 4]),
            id="equal callers by last use",
        ),
    ],
)
def test_callers_above_an_equal_share_of_the_disk_lose_entries_first(
    open_cache, entries, folder, room, case
):
    stored, seeds = case
    fill(open_cache(max_bytes=room * ENTRY_BYTES), entries, folder, stored)
    assert kept(folder, entries) == seeds


def test_number_of_shares_is_bounded(open_cache, entries, folder, monkeypatch):
    monkeypatch.setattr(cache_files, "MAX_SHARES", 2)
    # Two of four entries are not above half of the cache, although there are more callers than
    # entries.
    stored = [(0, "many addresses"), (1, "alice"), (2, "alice"), (3, "address 3"), (4, "address 4")]
    fill(open_cache(max_bytes=4 * ENTRY_BYTES), entries, folder, stored)
    assert kept(folder, entries) == [1, 2, 3, 4]


def test_entries_of_unknown_format_are_evicted_like_those_of_one_caller(
    open_cache, entries, folder
):
    cache = open_cache(max_bytes=3 * ENTRY_BYTES)
    fill(cache, entries, folder, [(1, "alice")])
    for number in (1, 2):
        path = folder / f"old {number}{SUFFIX}"
        path.write_bytes(b"MSAMEMB2" + bytes(ENTRY_BYTES - 8))
        os.utime(path, (100 + number, 100 + number))
    cache.put(entries.name(2), entries.make(2), "bob")
    assert kept(folder, entries) == [1, 2]
    assert (folder / f"old 2{SUFFIX}").exists()


@pytest.mark.parametrize("size_hw", [(0, 0), (0, 5), (5, 0), (65_536, 5), (5, 2**32 - 1)], ids=str)
def test_entry_of_a_size_that_no_image_has_is_removed(
    open_cache, entries, folder, warnings, size_hw
):
    open_cache().put(entries.name(1), replace(entries.make(1), size_hw=size_hw))
    assert open_cache().get(entries.name(1)) is None
    assert files(folder) == []
    assert f"sides of 1 to 65535 pixels, got {size_hw[1]} x {size_hw[0]}" in warnings[0]


def test_entry_above_the_limit_stays_in_memory_and_evicts_nothing(open_cache, entries, folder):
    cache = open_cache(max_bytes=ENTRY_BYTES)
    cache.put(entries.name(1), entries.make(1))
    cache.put(entries.name(2), entries.make(2, file_bytes=101))
    assert entries.same(cache.get(entries.name(2)), entries.make(2, file_bytes=101))
    assert open_cache(max_bytes=ENTRY_BYTES).get(entries.name(2)) is None
    assert [path.name.partition("-")[0] for path in files(folder)] == [entries.name(1)]


def test_concurrent_writers_stay_below_the_limit(open_cache, entries, folder, monkeypatch):
    bound = 2 * ENTRY_BYTES
    for seed in (1, 2):
        open_cache(max_bytes=bound).put(entries.name(seed), entries.make(seed))
    room_made, second_done = threading.Event(), threading.Event()
    create = tempfile.mkstemp

    def paused(*args, **kwargs):
        if threading.current_thread() is first:
            room_made.set()
            second_done.wait(1)  # times out if the second must wait for the first
        return create(*args, **kwargs)

    monkeypatch.setattr(tempfile, "mkstemp", paused)
    cache, entry = open_cache(max_bytes=bound), entries.make(3)
    first = threading.Thread(target=cache.put, args=(entries.name(3), entry), daemon=True)
    first.start()
    room_made.wait()
    open_cache(max_bytes=bound).put(entries.name(4), entries.make(4))
    second_done.set()
    first.join()
    assert total(folder) <= bound


def test_damaged_entry_is_reported_removed_and_replaced_but_stays_in_use(
    open_cache, entries, folder, warnings
):
    open_cache().put(entries.name(1), entries.make(1))
    (path,) = files(folder)
    reader = open_cache()
    in_use = reader.get(entries.name(1))
    path.write_bytes(entries.file(1)[:-1] + b"\xff\0")
    assert entries.same(in_use, entries.make(1))
    assert entries.same(reader.get(entries.name(1)), entries.make(1))
    cache = open_cache()
    for _ in range(2):
        assert cache.get(entries.name(1)) is None
        assert not path.exists()
        assert len(warnings) == 1
    assert path.name in warnings[0]
    cache.put(entries.name(1), entries.make(1))
    assert entries.same(open_cache().get(entries.name(1)), entries.make(1))


def test_entry_truncated_overwritten_or_with_a_flipped_bit_is_not_served(
    open_cache, entries, folder
):
    open_cache().put(entries.name(1), entries.make(1))
    (path,) = files(folder)
    generator = random.Random(0)
    whole = entries.file(1)
    half = len(whole) // 2
    damaged = [b"MSAMEMB1" + whole[8:], bytes(len(whole)), whole[:half] + bytes(len(whole) - half)]
    fields = range(len(MAGIC) + 4 + 4 + 8 + 4)
    edges = [HEADER.size, HEADER.size + LAYOUT.nbytes, len(whole) - 1]
    for offset in [
        *fields,
        *edges,
        *(generator.randrange(HEADER.size, len(whole)) for _ in range(20)),
    ]:
        flipped = bytearray(whole)
        flipped[offset] ^= 1 << generator.randrange(8)
        damaged += [whole[:offset], flipped]
    for number, data in enumerate(damaged):
        path.write_bytes(data)
        assert open_cache().get(entries.name(1)) is None, number
        assert not path.exists()


def test_entries_in_memory_are_bounded_in_bytes(
    open_cache, entries, tmp_path, warnings, monkeypatch
):
    cache = open_cache(max_bytes=0)  # no disk
    monkeypatch.setattr(cache_module, "MAX_MEMORY_BYTES", 2 * entries.make(1).nbytes)

    def kept() -> list[int]:
        return [seed for seed in (1, 2, 3, 4) if cache.get(entries.name(seed)) is not None]

    for seed in (1, 1, 2, 3):
        cache.put(entries.name(seed), entries.make(seed))
    assert kept() == [2, 3]
    cache.put(entries.name(4), entries.make(4, file_bytes=3_000_000))
    assert kept() == [4]
    cache.put(entries.name(2), entries.make(2))
    cache.put(entries.name(3), entries.make(3))
    assert kept() == [2, 3]
    assert warnings == list(tmp_path.iterdir()) == []


def test_entries_in_memory_are_copies_of_the_encoder_output(open_cache, entries):
    cache, entry = open_cache(max_bytes=0), entries.make(1)  # no disk
    cache.put(entries.name(1), entry)
    found = cache.get(entries.name(1))
    assert found is not None
    assert not np.shares_memory(
        found.embedding["image_embeddings"], entry.embedding["image_embeddings"]
    )


def test_entries_with_a_future_time_of_use_are_evicted_first(open_cache, entries, folder):
    cache = open_cache(max_bytes=2 * ENTRY_BYTES)
    tomorrow = time.time() + 86_400
    for seed in (1, 2):
        cache.put(entries.name(seed), entries.make(seed))
        (path,) = folder.glob(f"{entries.name(seed)}*")
        os.utime(path, (tomorrow + seed, tomorrow + seed))
    for seed in (3, 4):
        cache.put(entries.name(seed), entries.make(seed))
    kept = {path.name.partition("-")[0] for path in files(folder)}
    assert kept == {entries.name(3), entries.name(4)}


def test_unpack_does_not_copy(entries):
    whole = entries.file(1)
    entry = unpack(entries.name(1), whole, LAYOUT)
    assert np.shares_memory(entry.embedding["image_embeddings"], np.frombuffer(whole, np.uint8))
    with pytest.raises(InvalidEntry, match=f"expected at least {HEADER.size} bytes, got 3"):
        unpack(entries.name(1), b"abc", LAYOUT)


def test_partial_file_of_a_killed_writer_is_not_served_and_makes_room(open_cache, entries, folder):
    folder.mkdir(parents=True)
    partial, other = folder / f"tmp{PARTIAL}", folder / "notes.txt"
    for file in (partial, other):
        file.write_bytes(entries.file(9))
    cache = open_cache(max_bytes=ENTRY_BYTES)
    assert cache.get(entries.name(9)) is None
    cache.put(entries.name(9), entries.make(9))
    assert not partial.exists()
    assert other.exists()
    assert entries.same(open_cache().get(entries.name(9)), entries.make(9))


@contextlib.contextmanager
def file_instead_of_the_folder(folder: Path):
    folder.parent.touch()
    yield
    folder.parent.unlink()


@contextlib.contextmanager
def full_disk(folder: Path):
    """Let writes fail after a million bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("hindrance", [file_instead_of_the_folder, full_disk])
def test_unwritable_disk_is_reported_once_until_it_recovers(
    open_cache, entries, folder, warnings, hindrance
):
    cache = open_cache()
    with hindrance(folder):
        for seed in (1, 2, 3):
            cache.put(entries.name(seed), entries.make(seed))
            assert entries.same(cache.get(entries.name(seed)), entries.make(seed))
        assert len(warnings) == 1
        assert str(folder) in warnings[0]
        assert "cannot be used" in warnings[0]
        assert files(folder, PARTIAL) == files(folder) == []
    cache.put(entries.name(4), entries.make(4))
    assert entries.same(open_cache().get(entries.name(4)), entries.make(4))
    assert len(warnings) == 1
    with full_disk(folder):
        cache.put(entries.name(5), entries.make(5))
    assert len(warnings) == 2


def test_read_only_disk_still_serves_its_entries(open_cache, entries, warnings, monkeypatch):
    open_cache().put(entries.name(1), entries.make(1))

    def refused(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refused)
    monkeypatch.setattr(tempfile, "mkstemp", refused)
    cache = open_cache()
    for _ in range(2):
        assert entries.same(cache.get(entries.name(1)), entries.make(1))
    cache.put(entries.name(2), entries.make(2))
    assert entries.same(cache.get(entries.name(2)), entries.make(2))
    assert len(warnings) == 1


def test_encode_lock_without_a_writable_folder_does_not_block(
    open_cache, folder, entries, tmp_path
):
    with file_instead_of_the_folder(folder):
        with open_cache().encode_lock(entries.name(1)), open_cache().encode_lock(entries.name(1)):
            pass
        with pytest.raises(OSError, match="from inside"), open_cache().encode_lock(entries.name(1)):
            raise OSError("from inside")


def test_images_and_crops_share_the_space_of_one_cache(open_cache, folder):
    images, crops = with_crops(open_cache(8000))
    assert (images.max_bytes, images.folder) == (7000, folder)
    assert (crops.max_bytes, crops.folder) == (1000, folder / "crops")


def test_embedding_of_several_tensors_is_returned_as_stored(entries, folder, warnings):
    layout = Layout(WEIGHTS, {"image_embeddings": [1, 4, 4, 8], "high_res": [1, 16, 16, 2]})
    stored = entries.make(1, layout=layout)
    EmbeddingCache(folder, layout, 2**20, warnings.append).put(entries.name(1), stored)
    assert entries.same(
        EmbeddingCache(folder, layout, 2**20, warnings.append).get(entries.name(1)), stored
    )
    assert not warnings


@pytest.mark.parametrize(
    "layout",
    [Layout("e" * 64), Layout(WEIGHTS, {"image_embeddings": [1, 2, 2, 8]})],
    ids=["weights", "tensors"],
)
def test_entry_of_other_weights_is_refused_although_it_has_the_right_name(
    open_cache, entries, folder, layout, warnings
):
    open_cache().put(entries.name(1), entries.make(1))
    (path,) = files(folder)
    message = (
        f"of {layout.nbytes} bytes by the weights {layout.fingerprint[:16]}, got {LAYOUT.nbytes}"
        " bytes by ffff"
    )
    with pytest.raises(InvalidEntry, match=message):
        unpack(entries.name(1), path.read_bytes(), layout)
    path.rename(folder / f"{entries.name(1)}-{layout.fingerprint[:16]}{SUFFIX}")
    assert EmbeddingCache(folder, layout, 2**30, warnings.append).get(entries.name(1)) is None
    assert "is removed: expected an embedding of" in warnings[0]


def test_entry_of_the_file_only_gives_way_to_one_with_an_embedding_in_all_processes(
    open_cache, entries, folder
):
    cache, name, whole = open_cache(), entries.name(1), entries.make(1)
    kept = CachedImage({}, whole.size_hw, whole.file)
    cache.put(name, kept, "alice")
    later = open_cache()
    for each in (cache, later):
        found = each.get(name)
        assert (found.embedding, found.size_hw, bytes(found.file)) == (
            {},
            whole.size_hw,
            whole.file,
        )
    assert later.image_file(name) == whole.file
    later.put(name, whole, "alice")
    assert len(files(folder)) == 1
    assert entries.same(cache.get(name), whole)
    assert later.image_file(name) == whole.file


def test_entries_of_files_share_the_disk_space_of_their_caller(open_cache, entries, folder):
    room = 3 * len(entries.file(0))
    cache, small = open_cache(max_bytes=room), room // 30
    cache.put(entries.name(0), entries.make(0), "alice")
    for seed in range(1, 60):
        cache.put(entries.name(seed), CachedImage({}, (9, 9), bytes(small)), "mallory")
    assert total(folder) <= room
    assert entries.same(open_cache(max_bytes=room).get(entries.name(0)), entries.make(0))
