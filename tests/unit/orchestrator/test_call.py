"""Inputs, answers and cancellation of one request, with the service's side of its file."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from orchestrator.call import INLINE_BYTES, Call, MemoryFile, ModelRequest, RequestCancelled
from utils.inference.contents import Spooled

LARGE = bytes(range(256)) * 1000
SMALL = b"a few bytes"
MASKS = np.arange(2 * 256 * 256, dtype=np.float32).reshape(2, 256, 256)


def request_of(
    memory_file: MemoryFile, inputs: dict[str, Any] | None = None, **described: Any
) -> ModelRequest:
    """Return the request that a model gets; files are given as bytes."""
    inputs = inputs or {}
    files = {
        name: np.array([value], np.object_)
        for name, value in inputs.items()
        if isinstance(value, bytes)
    }
    return ModelRequest(
        (memory_file.put(inputs | files) | {"call": memory_file.describe(Call(**described))}).get
    )


@pytest.fixture
def memory_file() -> MemoryFile:
    return MemoryFile(time.monotonic() + 60)


def test_only_values_up_to_the_same_limit_go_through_triton_in_both_directions(memory_file):
    largest = np.zeros((INLINE_BYTES // 8, 1, 2), np.float32)
    larger = np.array([bytes(INLINE_BYTES + 1)], np.object_)
    assert set(memory_file.put({"input_image": larger, "point_coords": largest})) == {
        "point_coords"
    }
    _, outcome = request_of(memory_file).send([[bytes(INLINE_BYTES + 1)], [bytes(INLINE_BYTES)]])
    assert outcome.spooled == [INLINE_BYTES + 1, 0]


def test_inputs_arrive_unchanged_at_the_first_and_the_second_model(memory_file):
    labels, options = np.array([[1, 0]], np.int32), {"mask_format": "rle", "multimask_output": True}
    first = request_of(
        memory_file,
        {"mask_input": MASKS, "point_labels": labels},
        accepts_costly=False,
        owner="Zoë",
        options=options,
    )
    second = request_of(memory_file, {"mask_input": MASKS, "input_image": LARGE}, image_id="a")
    assert [first.read_file(), second.read_file()] == [None, LARGE]
    for found in (first.read("mask_input"), second.read("mask_input")):
        assert found is not None
        assert found.dtype == MASKS.dtype
        assert np.array_equal(found, MASKS)
    assert first.read("point_labels") is labels
    assert first.read("point_coords") is None
    assert (
        first.call.accepts_costly,
        first.call.image_id,
        first.call.owner,
        first.call.options,
    ) == (
        False,
        None,
        "Zoë",
        options,
    )
    assert (
        second.call.accepts_costly,
        second.call.image_id,
        second.call.owner,
        second.call.options,
    ) == (True, "a", "", {})


def test_large_parts_of_an_answer_are_written_to_the_file_in_order(memory_file):
    request = request_of(memory_file, {"input_image": LARGE})
    piece = np.arange(300_000).astype(np.uint8)
    parts, outcome = request.send([[b"[", piece, b"]"], [SMALL], [LARGE]])
    assert parts == [b"", SMALL, b""]
    assert outcome.spooled == [300_002, 0, len(LARGE)]
    assert memory_file.read(0, 10**6) == b"[" + piece.tobytes() + b"]" + LARGE


def test_without_a_file_all_values_go_through_triton():
    request = ModelRequest({"input_image": np.array([SMALL], np.object_)}.get)
    assert request.read_file() == SMALL
    request.raise_if_cancelled()
    parts, outcome = request.send([[LARGE, SMALL], []])
    assert (parts, outcome.spooled) == ([LARGE + SMALL, b""], [0, 0])


def test_request_past_its_deadline_is_cancelled():
    with pytest.raises(RequestCancelled, match="the deadline has passed"):
        request_of(MemoryFile(time.monotonic() - 1)).raise_if_cancelled()


USES: dict[str, Callable[[ModelRequest], object]] = {
    "check": ModelRequest.raise_if_cancelled,
    "read": lambda request: request.read("input_image"),
    "send": lambda request: request.send([[LARGE]]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("reused", [False, True], ids=["closed", "descriptor reused"])
def test_request_of_a_disconnected_client_is_cancelled(memory_file, use, reused, tmp_path):
    request = request_of(memory_file, {"input_image": LARGE})
    request.raise_if_cancelled()
    number = memory_file._fd
    memory_file.close()
    other = tmp_path / "other"
    other.write_bytes(b"untouched")
    fd = os.open(other, os.O_RDWR) if reused else -1
    assert fd in (-1, number)
    try:
        with pytest.raises(RequestCancelled, match="the client has disconnected"):
            use(request)
    finally:
        if reused:
            os.close(fd)
    assert other.read_bytes() == b"untouched"


def test_only_memory_files_of_the_service_are_trusted_and_written_to(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"untouched")
    fd = os.open(other, os.O_RDWR)
    description = {
        "file": f"/proc/{os.getpid()}/fd/{fd}",
        "inode": os.fstat(fd).st_ino,
        "deadline": 1e18,
    }
    request = ModelRequest({"call": np.array([orjson.dumps(description)], np.object_)}.get)
    with pytest.raises(RequestCancelled):
        assert request.from_service
    with pytest.raises(RequestCancelled):
        request.send([[LARGE]])
    os.close(fd)
    assert other.read_bytes() == b"untouched"


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "/proc/1/fd/2/../../environ", "/proc/self/fd/1", "memfd"]
)
def test_other_paths_are_rejected(file):
    description = orjson.dumps({"file": file, "inode": 1})
    with pytest.raises(ValueError, match="expected a file such as /proc/1/fd/2"):
        ModelRequest({"call": np.array([description], np.object_)}.get)


def test_memory_file_is_closed_with_the_last_part_of_an_answer():
    memory_file = MemoryFile(1e18)
    inode = os.fstat(memory_file._fd).st_ino

    def is_open() -> bool:
        return any(
            entry.stat().st_ino == inode
            for entry in Path("/proc/self/fd").iterdir()
            if entry.exists()
        )

    part = Spooled(memory_file, 0, 0)
    del memory_file
    assert is_open()
    del part
    assert not is_open()


def test_unknown_member_of_a_call_is_an_error(memory_file):
    members = memory_file.describe(Call(image_id="a"))[0].replace(b'"owner"', b'"ownr"')
    expected = "call: expected image_id, owner, .* got 'ownr'"
    with pytest.raises(ValueError, match=expected):
        ModelRequest({"call": np.array([members], np.object_)}.get)
