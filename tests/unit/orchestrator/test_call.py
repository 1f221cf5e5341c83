"""Inputs, answers and cancellation of one request, with the service's side of its file."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import orjson
import pytest

from orchestrator import call as call_module
from orchestrator.call import DECODE, INLINE_BYTES, MASK, STAGES, Call, RequestCancelled, Stages
from utils.triton import segmenter as service_side
from utils.triton import tensors
from utils.triton.segmenter import Exchange

LARGE = bytes(range(256)) * 1000
SMALL = b"a few bytes"
MASKS = np.arange(2 * 256 * 256, dtype=np.float32).reshape(2, 256, 256)


def call_of(exchange: Exchange, inputs: dict | None = None, **described: Any) -> Call:
    """Return the call that a model gets."""
    inline = asyncio.run(exchange.put(inputs or {}))
    values = {tensor.name: value for tensor, value in inline.items()} | {"call": exchange.describe(described)}
    return Call(values.get)


def bytes_of(call: Call, name: str) -> bytes:
    array = call.read(name)
    assert array is not None
    assert (array.dtype, array.shape) == (MASKS.dtype, MASKS.shape)
    return array.tobytes()


@pytest.fixture
def exchange() -> Exchange:
    return Exchange(time.monotonic() + 60)


def test_only_values_up_to_the_same_limit_go_through_triton_in_both_directions(exchange):
    values = {
        tensors.INPUT_IMAGE: np.array([bytes(INLINE_BYTES + 1)], np.object_),
        tensors.POINT_COORDS: np.zeros((INLINE_BYTES // 8, 1, 2), np.float32),
    }
    assert set(asyncio.run(exchange.put(values))) == {tensors.POINT_COORDS}
    _, sizes = call_of(exchange).send([[bytes(INLINE_BYTES + 1)], [bytes(INLINE_BYTES)]])
    assert sizes == [INLINE_BYTES + 1, 0]


def test_small_and_large_inputs_arrive_unchanged(exchange):
    call = call_of(
        exchange,
        {
            tensors.INPUT_IMAGE: np.array([LARGE], np.object_),
            tensors.MASK_INPUT: MASKS,
            tensors.POINT_LABELS: np.array([[1, 0]], np.int32),
        },
        image_id="a",
        owner="Zoë",
        options={"mask_format": "rle", "multimask_output": True},
    )
    assert call.read_file() == LARGE
    assert bytes_of(call, "mask_input") == MASKS.tobytes()
    labels = call.read("point_labels")
    assert labels is not None
    assert labels.tolist() == [[1, 0]]
    assert call.read("point_coords") is None
    assert (call.image_id, call.owner) == ("a", "Zoë")
    assert call.options == {"mask_format": "rle", "multimask_output": True}


def test_inputs_are_available_to_a_second_model(exchange):
    image = np.array([LARGE], np.object_)
    first = call_of(exchange, {tensors.MASK_INPUT: MASKS}, light=True)
    second = call_of(exchange, {tensors.MASK_INPUT: MASKS, tensors.INPUT_IMAGE: image}, light=False)
    assert (first.light, second.light) == (True, False)
    assert first.read_file() is None
    assert second.read_file() == LARGE
    assert bytes_of(second, "mask_input") == MASKS.tobytes()


def test_large_parts_of_an_answer_are_written_to_the_file_in_order(exchange):
    call = call_of(exchange, {tensors.INPUT_IMAGE: np.array([LARGE], np.object_)})
    piece = np.arange(300_000).astype(np.uint8)
    parts, sizes = call.send([[b"[", piece, b"]"], [SMALL], [LARGE]])
    assert parts == [b"", SMALL, b""]
    assert sizes == [300_002, 0, len(LARGE)]
    assert exchange.read(0, 300_002) == b"[" + piece.tobytes() + b"]"
    assert exchange.read(300_002, len(LARGE)) == LARGE
    assert exchange.read(300_002 + len(LARGE), 1) == b""


def test_without_a_file_all_values_go_through_triton():
    call = Call({"input_image": np.array([SMALL], np.object_)}.get)
    assert call.read_file() == SMALL
    assert (call.light, call.image_id, call.owner, call.options) == (False, None, "", {})
    call.raise_if_cancelled()
    assert call.send([[LARGE, SMALL], []]) == ([LARGE + SMALL, b""], [0, 0])


def test_request_past_its_deadline_is_cancelled():
    call = call_of(Exchange(time.monotonic() - 1))
    with pytest.raises(RequestCancelled, match="the deadline has passed"):
        call.raise_if_cancelled()


USES: dict[str, Callable[[Call], object]] = {
    "check": Call.raise_if_cancelled,
    "read": lambda call: call.read("input_image"),
    "send": lambda call: call.send([[LARGE]]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("reused", [False, True], ids=["closed", "descriptor reused"])
def test_request_of_a_disconnected_client_is_cancelled(exchange, use, reused, tmp_path):
    call = call_of(exchange, {tensors.INPUT_IMAGE: np.array([LARGE], np.object_)})
    call.raise_if_cancelled()
    number = exchange._fd
    exchange.close()
    other = tmp_path / "other"
    other.write_bytes(b"untouched")
    fd = os.open(other, os.O_RDWR) if reused else -1
    assert fd in (-1, number)
    try:
        with pytest.raises(RequestCancelled, match="the client has disconnected"):
            use(call)
    finally:
        if reused:
            os.close(fd)
    assert other.read_bytes() == b"untouched"


def test_only_memory_files_of_the_service_are_trusted_and_written_to(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    fd = os.open(victim, os.O_RDWR)
    description = {"file": f"/proc/{os.getpid()}/fd/{fd}", "inode": os.fstat(fd).st_ino, "deadline": 1e18}
    call = Call({"call": np.array([orjson.dumps(description)], np.object_)}.get)
    with pytest.raises(RequestCancelled):
        assert call.from_service
    with pytest.raises(RequestCancelled):
        call.send([[LARGE]])
    os.close(fd)
    assert victim.read_bytes() == b"untouched"


@pytest.mark.parametrize("file", ["/etc/passwd", "/proc/1/fd/2/../../environ", "/proc/self/fd/1", "memfd"])
def test_other_paths_are_rejected(file):
    description = orjson.dumps({"file": file, "inode": 1})
    with pytest.raises(ValueError, match="expected a file such as /proc/1/fd/2"):
        Call({"call": np.array([description], np.object_)}.get)


def test_memory_file_is_closed_with_the_last_part_of_an_answer():
    exchange = Exchange(1e18)
    inode = os.fstat(exchange._fd).st_ino
    part = service_side.Spooled(exchange, 0, 0)
    del exchange
    assert any(entry.stat().st_ino == inode for entry in Path("/proc/self/fd").iterdir() if entry.exists())
    del part
    assert not any(entry.stat().st_ino == inode for entry in Path("/proc/self/fd").iterdir() if entry.exists())


@pytest.fixture
def timers(monkeypatch) -> Mock:
    """Stand-in for `threading.Timer`."""
    monkeypatch.setattr(call_module, "Timer", made := Mock())
    return made


def fire(timers: Mock) -> None:
    """Run what the pending timers would run."""
    pending = timers.call_args_list
    timers.reset_mock()
    for timer in pending:
        timer.args[1]()


@pytest.fixture
def reported() -> list[tuple[str, int, float]]:
    return []


@pytest.fixture
def stages(reported, timers, monkeypatch) -> Stages:
    """Stages with a clock that advances by a second with each reading."""
    readings = itertools.count()
    monkeypatch.setattr(call_module, "perf_counter", lambda: float(next(readings)))
    return Stages(lambda *stage: reported.append(stage))


def run(stages: Stages, *names: str) -> None:
    for name in names:
        with stages(name):
            pass


def test_requests_are_reported_together_and_once_by_their_stages(stages, reported, timers):
    for names in ([DECODE, MASK, MASK], [MASK]):
        stages.begin()
        run(stages, *names)
    assert reported == []
    assert [timer.args[0] for timer in timers.call_args_list] == [call_module.REPORT_INTERVAL_S]
    assert timers.return_value.daemon is True  # a pending timer must not keep the process alive
    timers.return_value.start.assert_called_once()
    fire(timers)
    assert reported == [(DECODE, 1, 1.0), (MASK, 2, 3.0)]
    run(stages, MASK)  # the last request goes on
    fire(timers)
    assert reported[2:] == [(MASK, 0, 1.0)]


def test_uncounted_request_is_not_reported(stages, reported, timers):
    stages.begin(counts=False)
    run(stages, DECODE)
    assert not timers.called
    stages.begin()
    run(stages, MASK)
    fire(timers)
    assert reported == [(MASK, 1, 1.0)]


def test_failed_stage_is_timed_and_a_cancelled_request_starts_none(stages, reported, timers):
    checks = [None, None, RequestCancelled("the deadline has passed")]

    def check() -> None:
        if error := checks.pop(0):
            raise error

    stages.begin(check)
    run(stages, DECODE)
    with pytest.raises(ZeroDivisionError), stages(MASK):
        raise ZeroDivisionError
    with pytest.raises(RequestCancelled), stages(MASK):
        pytest.fail("the stage has started")
    fire(timers)
    assert reported == [(DECODE, 1, 1.0), (MASK, 1, 1.0)]


def test_stages_of_concurrent_threads_are_all_counted(reported, timers):
    stages = Stages(lambda *stage: reported.append(stage))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(stages, *STAGES), range(1000)))
    fire(timers)
    assert {stage: requests for stage, requests, _ in reported} == dict.fromkeys(STAGES, 1)
