"""Lookup and encoding of images: cache, Redis, encoder, owners and crops."""

import fcntl
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from orchestrator import images
from orchestrator.cache import (
    CROPS_SHARE,
    MOBILE_SAM_SHAPES,
    CachedImage,
    Embedding,
    Layout,
)
from orchestrator.cache_files import SUFFIX
from orchestrator.call import ModelRequest
from orchestrator.embeddings import ENCODED, FOUND, SHARED, Embeddings, EncodedImage
from orchestrator.problems import Rejected, UnknownImage
from orchestrator.stages import Stages

MAX_PIXELS = 10_000
ENTRY_BYTES = Layout("").nbytes + 8000
"""More than the size of the file of an entry."""
HEIGHT, WIDTH = 30, 40


def photo(seed: int = 0) -> bytes:
    """Return a PNG file of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def digest(file: bytes) -> str:
    return hashlib.sha256(file).hexdigest()


def sent(seed: int = 0) -> tuple[bytes, str]:
    """Return an image file and its id."""
    return photo(seed), digest(photo(seed))


ID = digest(photo())


class Encoder:
    """Encoder that returns the mean of the frame and records its inputs."""

    def __init__(self) -> None:
        self.frames: list[images.Frame] = []

    def __call__(self, frame: images.Frame) -> Embedding:
        self.frames.append(frame)
        return {
            name: np.full(shape, frame.pixels.mean(), np.float16)
            for name, shape in MOBILE_SAM_SHAPES.items()
        }


class SharedEntries(dict[str, CachedImage]):
    """Stand-in for Redis."""

    put = dict.__setitem__


@pytest.fixture
def encoder() -> Encoder:
    return Encoder()


@pytest.fixture
def counted() -> list[str]:
    return []


@pytest.fixture
def open_embeddings(open_cache, encoder, counted) -> Callable[..., Embeddings]:
    """Function that opens embeddings as a new process does."""

    def open_one(encode=encoder, redis=None, **options) -> Embeddings:
        stages = Stages(lambda *_: None)
        return Embeddings(
            open_cache(**options), redis, encode, MAX_PIXELS, counted.append, stages=stages
        )

    return open_one


def opened(embeddings: Embeddings, file: bytes | None, image_id: str, **of: Any) -> EncodedImage:
    tensors: dict[str, Any] = {"call": [json.dumps({"image_id": image_id, **of}).encode()]}
    if file is not None:
        tensors["input_image"] = [file]
    return embeddings.open(ModelRequest(tensors.get))


def find(embeddings: Embeddings, file: bytes | None, image_id: str, **of: str) -> EncodedImage:
    return embeddings.encode(opened(embeddings, file, image_id, **of))


def find_part(
    embeddings: Embeddings, image: EncodedImage, box_xyxy: tuple[int, int, int, int]
) -> EncodedImage:
    return embeddings.encode(embeddings.crop(image, box_xyxy))


def test_new_image_is_scaled_and_encoded(open_embeddings, encoder, counted):
    image = find(open_embeddings(), *sent())
    assert image.image_id == ID
    assert image.size_hw == (HEIGHT, WIDTH)
    assert bytes(image.entry.file) == photo()
    (frame,) = encoder.frames
    assert frame.size_hw == (768, 1024)
    assert (image.entry.embedding["image_embeddings"] == np.float16(frame.pixels.mean())).all()
    assert counted == [ENCODED]


@pytest.mark.parametrize("same_process", [True, False], ids=["same process", "another process"])
@pytest.mark.parametrize("by", ["file", "id"])
def test_known_image_is_found_and_not_encoded(open_embeddings, encoder, counted, same_process, by):
    embeddings = open_embeddings()
    first = find(embeddings, *sent())
    later = embeddings if same_process else open_embeddings()
    image = find(later, *sent()) if by == "file" else find(later, None, ID)
    assert (image.image_id, image.size_hw) == (first.image_id, first.size_hw)
    assert np.array_equal(
        image.entry.embedding["image_embeddings"], first.entry.embedding["image_embeddings"]
    )
    assert len(encoder.frames) == 1
    assert counted == [ENCODED, FOUND]


def test_health_checks_encode_a_known_image_again(open_embeddings, encoder, counted):
    embeddings = open_embeddings()
    embeddings.refresh = True
    for _ in range(2):
        find(embeddings, *sent())
    assert len(encoder.frames) == 2


def test_embedding_of_another_machine_comes_from_redis(
    open_embeddings, open_cache, tmp_path, encoder, counted
):
    redis = SharedEntries()
    first = find(open_embeddings(redis=redis, at=tmp_path / "another machine"), *sent())
    here = open_embeddings(redis=redis)
    for source in (SHARED, FOUND):
        image = find(here, None, ID)
        assert np.array_equal(
            image.entry.embedding["image_embeddings"], first.entry.embedding["image_embeddings"]
        )
        assert image.size_hw == (HEIGHT, WIDTH)
        assert counted[-1] == source
    assert find(open_embeddings(redis=None), *sent()).image_id == first.image_id
    assert counted == [ENCODED, SHARED, FOUND, FOUND]
    assert len(encoder.frames) == 1


@pytest.mark.parametrize("owner", ["", "alice"])
def test_entry_of_another_image_under_this_name_in_redis_is_not_served(
    open_embeddings, tmp_path, counted, owner
):
    redis = SharedEntries()
    elsewhere = open_embeddings(redis=redis, at=tmp_path / "another machine")
    right, other = (find(elsewhere, *sent(seed), owner=owner) for seed in (0, 1))
    redis[right.key] = redis[other.key]
    image = find(open_embeddings(redis=redis), *sent(0), owner=owner)
    assert np.array_equal(
        image.entry.embedding["image_embeddings"], right.entry.embedding["image_embeddings"]
    )
    assert bytes(image.entry.file) == photo(0)
    assert counted == [ENCODED] * 3
    assert bytes(redis[right.key].file) == photo(0)


def test_failed_encoding_stores_nothing_and_can_be_retried(open_embeddings, encoder, counted):
    def failing(frame):
        raise MemoryError

    with pytest.raises(MemoryError):
        find(open_embeddings(encode=failing), *sent())
    assert counted == []
    find(open_embeddings(), *sent())
    assert counted == [ENCODED]


def test_without_an_encoder_only_cached_images_are_accepted(open_embeddings, counted):
    find(open_embeddings(), *sent())
    cached = open_embeddings(encode=None, redis=SharedEntries())
    assert find(cached, *sent()).size_hw == (HEIGHT, WIDTH)
    assert find(cached, None, ID).size_hw == (HEIGHT, WIDTH)
    for file in (photo(1), None):
        with pytest.raises(UnknownImage):
            find(cached, file, digest(photo(1)))
    assert counted == [ENCODED, FOUND, FOUND]


@pytest.mark.parametrize(
    "image_id",
    [
        pytest.param(digest(b"never seen"), id="unknown"),
        pytest.param("", id="neither image nor id"),
        pytest.param("abc", id="too short"),
        pytest.param("A" * 64, id="upper case"),
        pytest.param("g" * 64, id="not hexadecimal"),
        pytest.param("a" * 64 + "\n", id="trailing line break"),
        pytest.param("../" * 21 + "a", id="path"),
        pytest.param("a" * 100_000, id="far too long"),
    ],
)
def test_image_id_that_is_none_is_unknown(open_embeddings, counted, image_id):
    with pytest.raises(UnknownImage):
        find(open_embeddings(), None, image_id)
    assert counted == []


@pytest.mark.parametrize("known", [False, True], ids=["new image", "known image"])
def test_opened_image_has_its_size_and_is_not_decoded(open_embeddings, encoder, monkeypatch, known):
    if known:
        find(open_embeddings(), *sent())
    encoder.frames.clear()
    monkeypatch.setattr(images, "decode", pytest.fail)
    image = opened(open_embeddings(), *sent())
    assert (image.size_hw, bool(image.entry.embedding)) == ((HEIGHT, WIDTH), known)
    assert encoder.frames == []


def test_invalid_image_is_rejected_and_neither_encoded_nor_stored(open_embeddings, encoder, folder):
    truncated = photo()[:-1000]
    with pytest.raises(Rejected, match="input_image"):
        find(open_embeddings(), truncated, digest(truncated))
    assert encoder.frames == []
    assert [path for path in folder.glob("*") if path.is_file()] == []


def test_pixels_are_decoded_from_the_entry_and_those_of_the_last_image_reused(
    open_embeddings, monkeypatch
):
    done: list[images.OpenedImage] = []
    decode = images.decode

    def counted(opened: images.OpenedImage, load: images.Load | None = None) -> Any:
        done.append(opened)
        return decode(opened, load)

    monkeypatch.setattr(images, "decode", counted)
    embeddings = open_embeddings()
    names = [find(embeddings, *sent(seed)).image_id for seed in (1, 2)]
    assert len(done) == 2
    wanted, _ = decode(images.open_image(photo(1), MAX_PIXELS))
    assert np.array_equal(find(open_embeddings(), None, names[0]).decode().pixels, wanted)
    done.clear()
    for name, count in ((names[1], 0), (names[0], 1), (names[0], 1), (names[1], 2)):
        image = find(embeddings, None, name)
        assert image.decode() is image.decode()
        find_part(embeddings, image, (10, 5, 30, 20))
        assert len(done) == count
    embeddings.release_pixels()
    image.decode()
    assert len(done) == 3


def file_16_bits(low: int, high: int) -> bytes:
    """Return a grey PNG file of 16 bits, stored on its side, whose samples are in this range."""
    samples = np.random.default_rng(0).integers(low, high, (WIDTH, HEIGHT), dtype=np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(samples).save(file, "PNG", exif=exif)
    return file.getvalue()


def test_orientation_and_range_are_known_with_the_embedding_also_later_and_of_a_part(
    open_embeddings,
):
    file = file_16_bits(1000, 5000)
    image = find(open_embeddings(), file, digest(file))
    assert image.entry.sample_range
    low, high = image.entry.sample_range
    assert 1000 <= low < 1020
    assert 4980 < high < 5000
    later = find(open_embeddings(), None, digest(file))
    part = find_part(open_embeddings(), later, (10, 5, 30, 20))
    known_part = find_part(open_embeddings(), later, (10, 5, 30, 20))
    for each in (image, later, part, known_part):
        assert (each.entry.orientation, each.entry.sample_range) == (6, (low, high))
        assert each.full_image.size_hw == (HEIGHT, WIDTH)


def test_range_of_8_bits_is_none(open_embeddings):
    assert find(open_embeddings(), *sent()).entry.sample_range is None


def test_crop_has_its_own_embedding_which_is_cached(open_embeddings, encoder, counted):
    embeddings = open_embeddings()
    whole = find(embeddings, *sent())
    crop = find_part(embeddings, whole, (10, 5, 30, 20))
    assert crop.size_hw == (15, 20)
    assert (crop.image_id, crop.full_image) == (whole.image_id, whole)
    wanted = images.LONGEST_SIDE.frame(np.ascontiguousarray(whole.decode().pixels[5:20, 10:30]))
    assert np.array_equal(encoder.frames[1].pixels, wanted.pixels)
    assert encoder.frames[1].size_hw == wanted.size_hw
    later = open_embeddings()
    again = find_part(later, find(later, None, whole.image_id), (10, 5, 30, 20))
    assert np.array_equal(
        again.entry.embedding["image_embeddings"], crop.entry.embedding["image_embeddings"]
    )
    assert again.size_hw == (15, 20)
    assert counted == [ENCODED, ENCODED, FOUND, FOUND]
    assert find_part(embeddings, whole, (0, 0, WIDTH, HEIGHT)) is whole


def test_crops_evict_no_images(open_embeddings, encoder, folder):
    embeddings = open_embeddings(max_bytes=40 * ENTRY_BYTES)
    images_of = [find(embeddings, *sent(seed), caller="alice") for seed in range(3)]
    for x in range(1, WIDTH):
        find_part(embeddings, images_of[0], (0, 0, x, HEIGHT))
    later = open_embeddings(max_bytes=40 * ENTRY_BYTES, encode=None)
    assert [find(later, None, image.image_id).size_hw for image in images_of] == [
        (HEIGHT, WIDTH)
    ] * 3
    assert len(list((folder / "crops").glob(f"*{SUFFIX}"))) == 40 // CROPS_SHARE


def test_crops_are_not_shared_through_redis(open_embeddings):
    redis = SharedEntries()
    embeddings = open_embeddings(redis=redis)
    find_part(embeddings, find(embeddings, *sent()), (10, 5, 30, 20))
    assert list(redis) == [ID]


@pytest.mark.parametrize("shared", [False, True], ids=["cache", "Redis"])
def test_entry_with_more_pixels_than_accepted_is_encoded_again(
    open_embeddings, open_cache, entries, counted, shared
):
    redis = SharedEntries()
    forged = replace(entries.make(1), size_hw=(101, 100), file=photo())
    redis[ID] = forged
    if not shared:
        open_cache().put(ID, forged)
    image = find(open_embeddings(redis=redis if shared else None), *sent())
    assert image.size_hw == (HEIGHT, WIDTH)
    assert counted == [ENCODED]


def test_crops_of_different_boxes_images_and_owners_differ(open_embeddings, counted):
    embeddings = open_embeddings()
    first, second = find(embeddings, *sent(1)), find(embeddings, *sent(2))
    assert (
        first.entry.embedding["image_embeddings"].flat[0]
        != second.entry.embedding["image_embeddings"].flat[0]
    )
    other = find(embeddings, *sent(1), owner="you")
    crops = [find_part(embeddings, image, (0, 0, 20, 20)) for image in (first, second, other)]
    crops.append(find_part(embeddings, first, (1, 0, 21, 20)))
    assert len({crop.key for crop in crops}) == 4
    assert counted == [ENCODED] * 7


@pytest.mark.parametrize(
    "later_weights", ["f" * 64, "b" * 64], ids=["same weights", "other weights"]
)
def test_image_is_encoded_for_each_owner_and_its_id_works_for_that_owner_only(
    open_embeddings, encoder, later_weights
):
    embeddings = open_embeddings()
    for owner in ("me", "you", "me"):
        assert find(embeddings, *sent(), owner=owner).image_id == ID
    assert len(encoder.frames) == 2
    later = open_embeddings(fingerprint=later_weights)
    for other in ("them", ""):
        with pytest.raises(UnknownImage):
            find(later, None, ID, owner=other)
    assert find(later, None, ID, owner="me").size_hw == (HEIGHT, WIDTH)


def test_image_cached_for_other_weights_is_encoded_by_its_id(open_embeddings, counted, encoder):
    first = find(open_embeddings(fingerprint="a" * 64), *sent())
    later = open_embeddings(fingerprint="b" * 64)
    image = find(later, None, first.image_id)
    assert (image.image_id, image.size_hw, bytes(image.entry.file)) == (
        first.image_id,
        (HEIGHT, WIDTH),
        photo(),
    )
    assert counted == [ENCODED, ENCODED]
    assert len(encoder.frames) == 2
    # The entry of a crop has no image file.
    crop = find_part(open_embeddings(fingerprint="a" * 64), first, (10, 5, 30, 20))
    with pytest.raises(UnknownImage):
        find(later, None, crop.key)


def keep(embeddings: Embeddings, file: bytes, **of: str) -> EncodedImage:
    image = opened(embeddings, file, digest(file), **of)
    embeddings.keep(image)
    return image


def test_file_is_kept_without_an_embedding_and_encoded_later_by_its_id(
    open_embeddings, encoder, folder
):
    image = keep(open_embeddings(), photo(), owner="me", caller="me")
    assert (image.image_id, image.size_hw, bytes(image.entry.file)) == (
        ID,
        (HEIGHT, WIDTH),
        photo(),
    )
    later = open_embeddings()
    assert np.array_equal(
        opened(later, None, ID, owner="me").decode().pixels, image.decode().pixels
    )
    for other, owner in ((open_embeddings(encode=None), "me"), (later, "you")):
        with pytest.raises(UnknownImage):
            find(other, None, ID, owner=owner)
    assert encoder.frames == []
    assert find(later, None, ID, owner="me").size_hw == (HEIGHT, WIDTH)
    assert len(encoder.frames) == len([path for path in folder.glob("*") if path.is_file()]) == 1
    assert opened(later, None, ID, owner="me").entry.embedding
    keep(later, photo(), owner="me")
    assert len([path for path in folder.glob("*") if path.is_file()]) == 1


def test_file_that_is_no_image_is_not_kept_and_a_truncated_one_is_rejected_when_it_is_encoded(
    open_embeddings, folder
):
    with pytest.raises(Rejected, match="input_image"):
        keep(open_embeddings(), photo()[:30])
    assert [path for path in folder.glob("*") if path.is_file()] == []
    image = keep(open_embeddings(), photo()[:-1000])
    with pytest.raises(Rejected, match="a complete image file"):
        find(open_embeddings(), None, image.image_id)


def test_part_of_an_image_that_is_not_encoded(open_embeddings, encoder, counted):
    embeddings = open_embeddings()
    image = opened(embeddings, *sent(), owner="me")
    part = find_part(embeddings, image, (10, 5, 30, 20))
    assert (part.full_image, part.region, part.size_hw) == (image, (10, 5, 30, 20), (15, 20))
    assert counted == [ENCODED]
    later = open_embeddings(encode=None)
    again = find_part(later, opened(later, None, ID, owner="me"), (10, 5, 30, 20))
    assert np.array_equal(
        again.entry.embedding["image_embeddings"], part.entry.embedding["image_embeddings"]
    )
    with pytest.raises(UnknownImage):
        opened(later, None, ID, owner="you")
    with pytest.raises(UnknownImage):
        find_part(later, opened(later, None, ID, owner="me"), (0, 0, WIDTH, HEIGHT))
    whole = find_part(embeddings, image, (0, 0, WIDTH, HEIGHT))
    assert (whole.full_image, whole.region, bytes(whole.entry.file)) == (
        whole,
        (0, 0, WIDTH, HEIGHT),
        photo(),
    )
    assert find(later, None, ID, owner="me").size_hw == (HEIGHT, WIDTH)
    assert len(encoder.frames) == 2


def test_whole_image_of_another_machine_has_parts_here(open_embeddings, tmp_path):
    redis = SharedEntries()
    find(open_embeddings(redis=redis, at=tmp_path / "another machine"), *sent())
    here = open_embeddings(redis=redis)
    assert find_part(here, opened(here, None, ID), (10, 5, 30, 20)).size_hw == (15, 20)


def test_mask_and_box_of_a_part_are_those_of_the_image(open_embeddings):
    embeddings = open_embeddings()
    part = find_part(embeddings, opened(embeddings, *sent()), (10, 5, 30, 25))
    logits = np.full((256, 256), -1, np.float32)
    logits[128:192, :64] = 1
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[15:20, 10:15] = True
    assert np.array_equal(part.mask(logits, 0), expected)
    whole = find(embeddings, *sent())
    assert whole.box(logits) == (0, 20, 10, 30)


@pytest.mark.parametrize("above", [True, False], ids=["above the limit", "below the limit"])
def test_one_process_at_a_time_decodes_an_image_above_the_limit(
    open_embeddings, folder, monkeypatch, above
):
    held = []
    decode = images.decode

    def noting(*given: Any) -> Any:
        lock = folder / "locks" / "decode"
        if lock.exists():
            with lock.open("wb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(True)
        return decode(*given)

    monkeypatch.setattr(images, "decode", noting)
    embeddings = open_embeddings()
    if above:
        embeddings.max_pixels = HEIGHT * WIDTH // 2
    image = opened(embeddings, *sent(), scale_down=True)
    assert embeddings.encode(image).size_hw == (HEIGHT, WIDTH)
    assert bool(held) is above
