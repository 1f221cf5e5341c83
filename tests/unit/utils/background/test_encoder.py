"""Jobs, and the encoder that works while no caller waits."""

import asyncio
import fcntl
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from tests.fake_segmenter import FakeSegmenter
from tests.unit.utils.edge.fakes import Clock
from utils.background import encoder as module
from utils.background.encoder import BackgroundEncoder, WaitingCallers
from utils.background.queue import EncodeQueue
from utils.edge.rate import RateLimit
from utils.errors import (
    InferenceUnavailable,
    InvalidRequest,
    Problem,
    QueueTooLarge,
    RejectedByModel,
    TooManyRequests,
)
from utils.inference.request import ImageSource
from utils.inference.shares import ACTIVE_S
from utils.observability.context import ADDRESS, KEY_NAME

IDS = [ImageSource(None, str(number)) for number in range(3)]
TIMEOUT_S = 60
"""Time until a test fails; no test depends on speed."""


class Encoder(BackgroundEncoder):
    """Jobs with a fake segmenter."""

    def __init__(self, tmp_path, rate: str | None = None) -> None:
        self.segmenter, self.is_ready = FakeSegmenter(), True
        queue = EncodeQueue(tmp_path / "queue.sqlite3", 2**30, 0)
        charge = RateLimit(rate, None).check if rate else None
        super().__init__(
            queue,
            tmp_path,
            self.segmenter,
            lambda: self.is_ready,
            charge,
            versions=self.loaded,
            callers=WaitingCallers(tmp_path / "callers"),
        )

    async def loaded(self) -> list[int]:
        return [1, 3]

    def steps(self, count: int) -> None:
        async def run() -> None:
            for _ in range(count):
                await self._step()

        asyncio.run(run())

    def add_all(self, images=IDS) -> str:
        return str(asyncio.run(self.add(images))["job"])

    def states(self, job: str) -> list[str]:
        return [image["state"] for image in self._queue.job(job, "")["images"]]


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waited


@pytest.fixture
def encoder(tmp_path, waits) -> Encoder:
    return Encoder(tmp_path)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def test_list_for_a_version_that_is_not_loaded_is_refused_before_anything_is_queued(encoder):
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(encoder.add([ImageSource(b"file", None), *IDS], 99))
    (error,) = caught.value.errors
    assert (error.field, error.got) == ("model_version", "99")
    assert not encoder.segmenter.calls
    assert encoder._queue.begin("") is None
    assert asyncio.run(encoder.add(IDS, 3))["queued"] == len(IDS)


def test_images_are_encoded_for_their_owner_and_caller(encoder):
    KEY_NAME.set("alice")
    job = encoder.add_all()
    KEY_NAME.set("")
    callers = []
    embed = encoder.segmenter.embed

    async def noting(*given: Any, background: bool) -> bytes:
        callers.append((KEY_NAME.get(), ADDRESS.get()))
        return bytes(await embed(*given, background=background))

    encoder.segmenter.embed = noting
    encoder.steps(4)
    assert callers == [("alice", "alice")] * 3
    assert encoder.segmenter.embeds == [
        ImageSource(None, str(number), "alice") for number in range(3)
    ]
    # One above the limit is of an adapter.
    assert all(image.scale_down for image in encoder.segmenter.embeds)
    assert encoder._queue.job(job, "alice")["done"] == 3


def test_files_are_kept_first_and_unusable_ones_fail_without_the_others(encoder):
    embed = encoder.segmenter.embed

    async def refusing(image: ImageSource, *given: Any, background: bool) -> bytes:
        answer = await embed(image, *given, background=background)
        if image.file == b"bad":
            raise RejectedByModel(Problem(422, "invalid-image", "No", "it is damaged"))
        return bytes(answer)

    encoder.segmenter.embed = refusing
    job = encoder.add_all([ImageSource(file, None) for file in (b"good", b"bad")])
    encoder.steps(2)
    assert encoder.states(job) == ["done", "failed"]
    found = encoder._queue.job(job, "")["images"]
    assert found[1]["problem"]["detail"] == "it is damaged"
    assert [image.image_id for image in encoder.segmenter.stored] == [
        image["image_id"] for image in found
    ]
    assert [image.image_id for image in encoder.segmenter.embeds] == [found[0]["image_id"]]


def test_each_image_counts_in_the_rate_limit_as_its_request_does(tmp_path):
    encoder = Encoder(tmp_path, "3/minute")
    encoder.add_all()  # the edge counts the first one
    with pytest.raises(TooManyRequests, match="rate limit exceeded"):
        encoder.add_all()


def test_list_without_room_keeps_nothing(encoder):
    with pytest.raises(QueueTooLarge):
        encoder.add_all([ImageSource(bytes(2**28), None)] * 4)
    assert encoder.segmenter.calls == []


@pytest.mark.parametrize("error", [InferenceUnavailable("it restarts"), asyncio.CancelledError()])
def test_room_of_a_list_whose_files_are_not_kept_is_free_again(encoder, error):
    encoder.segmenter.error = error
    with pytest.raises(type(error)):
        encoder.add_all([ImageSource(b"file", None)])
    assert b'{state="queued"} 0' in encoder._queue.metrics()


def test_evicted_image_has_failed(encoder):
    job = encoder.add_all()
    encoder.segmenter.lost = {"1"}
    encoder.steps(3)
    assert encoder.states(job) == ["done", "failed", "done"]
    problem = encoder._queue.job(job, "")["images"][1]["problem"]
    assert (problem["status"], problem["detail"]) == (404, module.EVICTED)


def test_image_is_tried_again_while_triton_restarts_and_fails_after_some_attempts(encoder, waits):
    job = encoder.add_all(IDS[:1])
    encoder.segmenter.error = InferenceUnavailable("it restarts")
    for _ in range(2):
        with pytest.raises(InferenceUnavailable):
            encoder.steps(1)
    assert encoder.states(job) == ["queued"]
    encoder.is_ready = False
    encoder.steps(5)
    encoder.is_ready = True
    assert encoder.states(job) == ["queued"]
    for _ in range(module.MAX_ATTEMPTS - 3):
        with pytest.raises(InferenceUnavailable):
            encoder.steps(1)
    encoder.steps(1)
    assert encoder.states(job) == ["failed"]


def test_image_whose_encode_ends_the_service_each_time_fails_without_a_further_attempt(encoder):
    job = encoder.add_all(IDS[:2])
    for _ in range(module.MAX_ATTEMPTS):
        # And nothing is recorded: the process was killed.
        assert encoder._queue.begin("")["image_id"] == "0"
    encoder.steps(2)
    assert encoder.states(job) == ["failed", "done"]
    assert [image.image_id for image in encoder.segmenter.embeds] == ["1"]
    assert encoder._queue.job(job, "")["images"][0]["problem"]["detail"] == module.ENDED_THE_SERVICE


@pytest.mark.parametrize("times", [1, 2])
def test_image_cancelled_while_it_is_encoded_stays_cancelled_and_the_next_one_is_encoded(
    encoder, times
):
    job, other = encoder.add_all(IDS[:2]), encoder.add_all(IDS[2:])
    embed, answers = encoder.segmenter.embed, list[dict[str, Any]]()

    async def cancelling(image: ImageSource, *given: Any, background: bool) -> bytes:
        if image.image_id == "0":
            answers.extend(encoder._queue.job(job, "", cancel=True) for _ in range(times))
        return bytes(await embed(image, *given, background=background))

    encoder.segmenter.embed = cancelling
    encoder.steps(3)
    assert [answer["cancelled"] for answer in answers] == [2] * times
    assert (encoder.states(job), encoder.states(other)) == (["cancelled"] * 2, ["done"])
    assert [image.image_id for image in encoder.segmenter.embeds] == ["0", "2"]


def test_image_cancelled_between_its_turn_and_its_encode_ends_once(encoder, monkeypatch):
    job, begin = encoder.add_all(IDS[:1]), encoder._queue.begin

    def cancelled(after: str) -> Any:
        row = begin(after)
        encoder._queue.job(job, "", cancel=True)
        return row

    monkeypatch.setattr(encoder._queue, "begin", cancelled)
    encoder.steps(1)
    assert encoder.states(job) == ["cancelled"]
    assert begin("") is None


@pytest.mark.parametrize("jump_s", [3600, -86_400])
def test_jump_of_the_clock_neither_hurries_an_image_without_a_file_nor_holds_up_the_encoder(
    tmp_path, waits, monkeypatch, jump_s
):
    encoder, wall, monotonic = Encoder(tmp_path), Clock(1_800_000_000), Clock()
    monkeypatch.setattr("time.time", wall)
    monkeypatch.setattr("time.monotonic", monotonic)
    with encoder.callers.one_more():
        pass
    wall.now += jump_s
    _, (kept, _) = encoder._queue.add("", "a", None, [("kept", 9), ("lost", 9)])
    encoder._queue.record(kept, "queued")
    wall.now += jump_s
    monotonic.now += module.REST_FACTOR
    encoder.steps(2)
    assert [image.image_id for image in encoder.segmenter.embeds] == ["kept"]
    wall.now -= 2 * jump_s
    monotonic.now += 601
    encoder.steps(1)
    assert [image.image_id for image in encoder.segmenter.embeds] == ["kept", "lost"]


def test_nothing_is_begun_while_a_caller_waits(encoder, waits):
    job = encoder.add_all(IDS[:1])
    with encoder.callers.one_more(), encoder.callers.one_more():
        encoder.steps(1)
    assert (encoder.segmenter.embeds, waits) == ([], [module.POLL_S])
    encoder.steps(1)
    assert encoder.states(job) == ["done"]


def test_encodes_rest_while_callers_are_active_and_not_afterwards(encoder, clock):
    encoder.add_all()
    with encoder.callers.one_more():
        pass
    began = clock.now = encoder.callers._file.stat().st_mtime + 1

    async def slow(*_: Any, background: bool) -> bytes:
        clock.now += 0.1
        return b""

    encoder.segmenter.embed = slow
    encoder.steps(3)
    assert clock.now == pytest.approx(began + 0.1)
    clock.now += 0.1 * module.REST_FACTOR
    encoder.steps(3)
    assert clock.now == pytest.approx(began + 0.2 + 0.1 * module.REST_FACTOR)
    clock.now = began + ACTIVE_S
    encoder.steps(1)
    assert clock.now == pytest.approx(began + ACTIVE_S + 0.1)


@pytest.mark.parametrize("jump_s", [1.0, 3600, -1.0, -86_400])
def test_time_since_the_last_answer_does_not_depend_on_the_clock_that_people_set(
    tmp_path, monkeypatch, jump_s
):
    wall, monotonic = Clock(1_800_000_000), Clock()
    monkeypatch.setattr("time.time", wall)
    monkeypatch.setattr("time.monotonic", monotonic)
    callers = WaitingCallers(tmp_path / "callers")
    with callers.one_more():
        wall.now += jump_s
    wall.now += jump_s
    monotonic.now += 0.25
    assert callers.idle_s() == pytest.approx(0.25)
    monotonic.now = 1.0  # the machine has started again
    assert callers.idle_s() == ACTIVE_S


def test_callers_of_another_process_count(tmp_path, clock):
    one, other = WaitingCallers(tmp_path / "callers"), WaitingCallers(tmp_path / "callers")
    assert other.idle_s() == ACTIVE_S
    with one.one_more():
        assert (one.idle_s(), other.idle_s()) == (0, 0)
    clock.now += 2
    assert other.idle_s() == pytest.approx(2)


async def run_for(encoder: Encoder, seconds: float) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(encoder.run(), seconds)


async def run_until(encoder: Encoder, condition: Callable[[], object]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    running = asyncio.create_task(encoder.run())
    await asyncio.wait_for(wait(), TIMEOUT_S)
    running.cancel()


def test_only_the_process_with_the_lock_encodes(encoder, tmp_path, monkeypatch):
    encoder.add_all()
    monkeypatch.undo()
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    with (tmp_path / "encoder").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asyncio.run(run_for(encoder, 0.1))
        assert not encoder.segmenter.embeds
    asyncio.run(run_until(encoder, lambda: b'{state="done"} 3' in encoder._queue.metrics()))
    assert len(encoder.segmenter.embeds) == 3


@pytest.mark.parametrize("by", ["this process", "another one"])
def test_idle_encoder_looks_into_the_queue_after_a_job_only_or_after_a_long_time(
    encoder, tmp_path, monkeypatch, by
):
    monkeypatch.undo()
    looks = Mock(side_effect=encoder._queue.begin)
    monkeypatch.setattr(encoder._queue, "begin", looks)
    if by == "another one":
        monkeypatch.setattr(module, "CHECK_S", 0.3)

    async def work() -> None:
        running = asyncio.create_task(encoder.run())
        while not looks.call_count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        # A pause of the machine may be longer than the short `CHECK_S`.
        assert by == "another one" or looks.call_count == 1
        await (encoder if by == "this process" else Encoder(tmp_path)).add(IDS)
        while len(encoder.segmenter.embeds) < 3:
            await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(asyncio.wait_for(work(), TIMEOUT_S))


def test_unexpected_error_is_logged_and_does_not_end_the_encoder(encoder, monkeypatch, caplog):
    encoder.add_all(IDS[:1])
    monkeypatch.undo()
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    caplog.set_level("INFO")
    errors = iter([ZeroDivisionError(), ZeroDivisionError()])

    async def failing(*_: Any, background: bool) -> bytes:
        for error in errors:
            raise error
        return json.dumps({}).encode()

    encoder.segmenter.embed = failing

    again = "images of the queue are encoded again"
    asyncio.run(run_until(encoder, lambda: again in caplog.text))
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["the queue of images waits", again]
    assert "ZeroDivisionError" in caplog.text
    assert b'{state="done"} 1' in encoder._queue.metrics()
