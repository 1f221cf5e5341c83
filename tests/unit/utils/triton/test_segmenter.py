"""Segmentation by Triton's models, with a fake client."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from orchestrator.call import Call, RequestCancelled
from orchestrator.costs import Workload
from utils.api.answers import chunks
from utils.api.errors import (
    ImageNotCached,
    InferenceFailed,
    InferenceTimeout,
    InvalidRequest,
    NotLoaded,
    Overloaded,
    RejectedByModel,
)
from utils.api.inputs import ImageSource, Prompts
from utils.api.jobs import GridBatch, Job
from utils.api.requests import SegmentRequest
from utils.observability.context import ADDRESS, CALLER, TRACE_ID
from utils.triton import tensors
from utils.triton.segmenter import MAX_COSTLY_WAITING, MIN_COSTLY_OBJECTS, TritonSegmenter

NEW, KNOWN = ImageSource(b"file", None), ImageSource(None, "an id")
LARGE = ImageSource(b"file" * 300_000, None)
ONE = Prompts(
    np.array([[[1, 2], [3, 4]]], np.float32),
    np.array([[1, 0]], np.int32),
    (("pos_coords[0]", "neg_coords[0]"),),
    np.zeros((0, 256, 256), np.float32),
    np.zeros(0, np.int32),
)
TWO = Prompts(
    np.array([[[1, 2], [0, 0]], [[5, 6], [7, 8]]], np.float32),
    np.array([[1, -2], [2, 3]], np.int32),
    (("prompts[0].pos_coords[0]",), ("prompts[1].box", "prompts[1].box")),
    np.ones((1, 256, 256), np.float32),
    np.array([1], np.int32),
)
THRESHOLDS = {"stability_score_thresh": 0.25, "stability_score_offset": 2.0, "min_mask_region_area": 7}
BATCH = GridBatch(np.array([[1, 2], [3, 4]], np.float32), {"crop_box": (1, 2, 30, 40), **THRESHOLDS}, 3)
OPTIONS = {
    "multimask_output": True,
    "mask_format": "png",
    "segmented_image": "none",
    "low_res_mask": True,
    "min_mask_region_area": 9,
    "mask_threshold": 0.5,
    "polygon_tolerance": 2.0,
}
UNKNOWN, COSTLY = {"known": False}, {"costly": True}


def job_of(prompts: Prompts) -> Job:
    return Job(prompts, SegmentRequest.model_validate({**OPTIONS, "model_version": 7}))


def problem_of(slug: str = "invalid-request", field: str = "input_image") -> dict:
    errors = [{"field": field, "expected": "this", "got": "that"}]
    return {"problem": {"status": 422, "slug": slug, "title": "a title", "errors": errors}}


class Result(dict):
    """Like `tritonclient.http.InferResult`."""

    def as_numpy(self, name: str):
        return np.array([self.get(name, b"")], np.object_)


def bytes_of(value: np.ndarray) -> bytes:
    return value[0] if value.dtype == object else value.tobytes()


class Client:
    """Fake of `tritonclient.http.aio.InferenceServerClient.infer` that stores the calls.

    Like the models, it writes large outputs to the file of the request, and knows any image whose file it gets.
    """

    def __init__(
        self,
        error: BaseException | None = None,
        outcomes: dict[str, dict] | None = None,
        delays: dict[str, float] | None = None,
        **outputs: bytes,
    ) -> None:
        self.error, self.outcomes, self.delays, self.outputs = error, outcomes or {}, delays or {}, outputs
        self.calls: list[dict] = []
        self.received: list[Call] = []
        self.large: list[dict[str, bytes]] = []
        """Inputs of each call that were in its file."""

    async def infer(self, **call):
        self.calls.append(call)
        model = call["model_name"]
        inputs, (*outputs, _) = tensors.MODELS[model]
        sent = self.sent(-1)
        received = Call({"call": np.array([sent["call"][2][4:]], np.object_)}.get)
        self.received.append(received)
        read = {tensor.name: received.read(tensor.name) for tensor in inputs[1:]}
        self.large.append({name: bytes_of(value) for name, value in read.items() if value is not None})
        await asyncio.sleep(self.delays.get(model, 0))
        if self.error:
            raise self.error
        outcome = self.outcomes.get(model)
        if outcome and not (outcome == UNKNOWN and "input_image" in sent | self.large[-1]):
            return Result(outcome=json.dumps(outcome).encode())
        inline, spooled = received.send([[self.outputs.get(output.name, b"")] for output in outputs])
        parts = dict(zip((output.name for output in outputs), inline, strict=True))
        return Result(parts, outcome=json.dumps({"spooled": spooled}).encode())

    @property
    def models(self) -> list[str]:
        return [call["model_name"] for call in self.calls]

    def sent(self, index: int = 0) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
        """Return data type, shape and bytes of the inputs by name."""
        return {
            entry.name(): (entry.datatype(), tuple(entry.shape()), entry._get_binary_data())
            for entry in self.calls[index]["inputs"]
        }


def segmenter_of(client: Client, timeout: float = 60) -> TritonSegmenter:
    return TritonSegmenter(client.infer, timeout)


def segment(client: Client, image: ImageSource = NEW, prompts: Prompts = ONE, timeout: float = 60):
    return asyncio.run(segmenter_of(client, timeout).segment(image, job_of(prompts)))


def embed(client: Client, image: ImageSource = NEW, timeout: float = 60):
    return asyncio.run(segmenter_of(client, timeout).embed(image))


def records(client: Client, image: ImageSource = NEW, timeout: float = 60):
    return asyncio.run(segmenter_of(client, timeout).records(image, BATCH))


def values(client: Client, index: int) -> dict[str, bytes]:
    """Return the inputs of a call without its description; those of one BYTES element without their length."""
    sent = {name: data[4:] if kind == "BYTES" else data for name, (kind, _, data) in client.sent(index).items()}
    del sent["call"]
    return sent | client.large[index]


def numbers(data: bytes, dtype) -> list[float]:
    return list(np.frombuffer(data, dtype))


@pytest.mark.parametrize(("sent", "picture"), [(b"p", b"p"), (b"", None)], ids=["picture", "no picture"])
def test_segment_returns_the_model_outputs(sent, picture):
    answer = segment(Client(mask=b"m", picture=sent, result=b"r"))
    assert (answer.mask, answer.picture, answer.result) == (b"m", picture, b"r")


def test_embed_sends_no_prompts_and_returns_the_result():
    client = Client(outcomes={"mobile_sam_cached": UNKNOWN}, result=b"r")
    assert embed(client, NEW) == b"r"
    assert [set(client.sent(index)) for index in range(2)] == [{"call"}, {"call", "input_image"}]
    assert client.received[0].options == {}


@pytest.mark.parametrize(
    ("call", "model", "absent"),
    [
        (lambda client: segment(client, NEW, TWO), tensors.SEGMENT_CACHED, set()),
        (segment, tensors.SEGMENT_CACHED, {"mask_input", "mask_input_object"}),
        (records, tensors.EVERYTHING, set()),
    ],
    ids=["segment", "no mask input", "automatic masks"],
)
def test_inputs_and_outputs_match_the_declared_tensors(call, model, absent):
    client = Client(records=b"[]")
    call(client)
    assert client.models == [model]
    inputs, outputs = tensors.MODELS[model]
    sent = client.sent()
    assert {tensor.name for tensor in inputs} - set(sent) - set(client.large[0]) == {"input_image", *absent}
    declared = {tensor.name: tensor for tensor in inputs}
    for name, (datatype, shape, _) in sent.items():
        assert datatype == declared[name].datatype
        assert len(shape) == len(declared[name].shape)
        assert all(want in {-1, have} for want, have in zip(declared[name].shape, shape, strict=True))
    assert [output.name() for output in client.calls[0]["outputs"]] == [tensor.name for tensor in outputs]
    assert client.calls[0]["headers"] == {"Accept-Encoding": "identity"}  # no gzip


def test_values_are_sent_unchanged():
    client = Client()
    segment(client, KNOWN, TWO)
    data = {name: value for name, (_, _, value) in client.sent().items()}
    assert numbers(data["point_coords"], np.float32) == [1, 2, 0, 0, 5, 6, 7, 8]
    assert numbers(data["point_labels"], np.int32) == [1, -2, 2, 3]
    assert numbers(client.large[0]["mask_input"], np.float32) == [1] * 256 * 256
    assert numbers(data["mask_input_object"], np.int32) == [1]
    assert (client.received[0].image_id, client.received[0].options) == ("an id", {**OPTIONS, "document": False})


def test_batch_is_sent_unchanged_to_the_version_that_encoded_the_image():
    client = Client(records=b'[{"area": 1}]')
    assert records(client) == [{"area": 1}]
    assert numbers(client.sent()["point_coords"][2], np.float32) == [1, 2, 3, 4]
    assert client.received[0].options == {"crop_box": [1, 2, 30, 40], **THRESHOLDS}
    assert client.calls[0]["model_version"] == "3"


CALLS = pytest.mark.parametrize("call", [segment, embed])


@CALLS
@pytest.mark.parametrize("image", [NEW, KNOWN], ids=["a file", "an id"])
def test_cached_image_uses_only_the_cached_model(call, image):
    client = Client(result=b"r")
    call(client, image)
    assert client.models == ["mobile_sam_cached"]


@CALLS
@pytest.mark.parametrize("image", [NEW, KNOWN, LARGE], ids=["a file", "an id", "a large file"])
def test_uncached_image_falls_back_to_the_full_model(call, image):
    client = Client(outcomes={"mobile_sam_cached": UNKNOWN}, result=b"r")
    call(client, replace(image, owner="me"))
    assert client.models == ["mobile_sam_cached", "mobile_sam"]
    assert values(client, 1) == values(client, 0) | ({"input_image": image.file} if image.file else {})
    assert "input_image" not in values(client, 0)
    name = image.image_id or hashlib.sha256(image.file).hexdigest()
    assert [(received.image_id, received.owner) for received in client.received] == [(name, "me")] * 2
    assert client.received[0].options == client.received[1].options


@CALLS
@pytest.mark.parametrize("known", [True, False])
def test_costly_request_falls_back_to_the_costly_model(call, known):
    outcomes = {"mobile_sam_cached": COSTLY if known else UNKNOWN, "mobile_sam": COSTLY}
    client = Client(outcomes=outcomes, result=b"r")
    call(client, LARGE)
    models = ["mobile_sam_cached", "mobile_sam", "mobile_sam_costly"]
    assert client.models == ([models[0], models[2]] if known else models)
    assert [received.light for received in client.received] == [name != "mobile_sam_costly" for name in client.models]
    assert client.large[-1]["input_image"] == LARGE.file


@CALLS
@pytest.mark.parametrize(
    "models", [["mobile_sam_cached"], ["mobile_sam_cached", "mobile_sam"]], ids=["first", "second"]
)
def test_rejection_by_a_model_is_final(call, models):
    client = Client(outcomes={"mobile_sam_cached": UNKNOWN} | {models[-1]: problem_of("image-too-large")})
    with pytest.raises(RejectedByModel) as caught:
        call(client)
    assert caught.value.problem().slug == "image-too-large"
    assert client.models == models


def many(objects: int) -> Prompts:
    points = np.ones((objects, 1, 2), np.float32)
    return replace(
        ONE, points_xy=points, labels=points[:, :, 0].astype(np.int32), fields=(("pos_coords[0]",),) * objects
    )


@pytest.mark.parametrize(
    ("objects", "model"),
    [(MIN_COSTLY_OBJECTS - 1, "mobile_sam_cached"), (MIN_COSTLY_OBJECTS, "mobile_sam_costly")],
)
def test_many_objects_go_to_the_costly_model_at_once(objects, model):
    client = Client(mask=b"m", result=b"r")
    segment(client, NEW, many(objects))
    assert client.models == [model]
    assert Workload(objects, objects).is_light(1) == (model == "mobile_sam_cached")


def test_check_room_rejects_costly_requests_while_the_queue_is_full():
    client = Client(mask=b"m", result=b"r", delays={"mobile_sam_costly": 0.05})
    segmenter = TritonSegmenter(client.infer, 60, {"mobile_sam_costly": 1})

    async def crowd() -> None:
        job = job_of(many(MIN_COSTLY_OBJECTS))
        tasks = [asyncio.create_task(segmenter.segment(NEW, job)) for _ in range(2 + MAX_COSTLY_WAITING)]
        await asyncio.sleep(0.01)
        few, many_objects = (
            json.dumps({"prompts": [{"pos_coords": [[1, 1]]}] * count}).encode()
            for count in (MIN_COSTLY_OBJECTS - 1, MIN_COSTLY_OBJECTS)
        )
        segmenter.check_room(few)
        with pytest.raises(Overloaded, match=r"waiting \(8\)"):
            segmenter.check_room(many_objects)
        await asyncio.gather(*tasks)
        segmenter.check_room(many_objects)

    asyncio.run(crowd())


@pytest.mark.parametrize(("seconds", "wait_s", "rejected"), [(0.05, 60, 0), (60, 0.05, 1)], ids=["room", "no room"])
def test_costly_request_waits_for_room_in_a_full_queue(monkeypatch, seconds, wait_s, rejected):
    monkeypatch.setattr("utils.triton.segmenter.FULL_QUEUE_WAIT_S", wait_s)
    client = Client(mask=b"m", result=b"r", delays={"mobile_sam_costly": seconds})
    segmenter = TritonSegmenter(client.infer, 60, {"mobile_sam_costly": 0})

    async def crowd() -> int:
        job = job_of(many(MIN_COSTLY_OBJECTS))
        tasks = [asyncio.create_task(segmenter.segment(NEW, job)) for _ in range(1 + MAX_COSTLY_WAITING + 1)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        errors = [task.exception() for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sum(isinstance(error, Overloaded) for error in errors)

    assert asyncio.run(crowd()) == rejected


def test_large_parts_stay_in_the_file_until_they_are_read():
    mask, result = b"m" * 70_000, b"r" * 600_000
    client = Client(mask=mask, picture=b"p", result=result)
    answer = segment(client)
    (received,) = client.received
    received.raise_if_cancelled()
    assert [len(part) for part in (answer.mask, answer.picture, answer.result)] == [70_000, 1, 600_000]
    assert [bytes(part) for part in (answer.mask, answer.picture, answer.result)] == [mask, b"p", result]
    assert [len(piece) for piece in chunks(answer.result)] == [262_144, 262_144, 75_712]
    del answer
    with pytest.raises(RequestCancelled, match="the client has disconnected"):
        received.raise_if_cancelled()


@pytest.mark.parametrize("call", [segment, embed, records])
def test_failure_is_final_and_tells_the_models_that_the_caller_is_gone(call):
    client = Client(InferenceServerException("/secret/path failed", status="500"))
    with pytest.raises(InferenceFailed) as caught:
        call(client)
    assert b"secret" not in caught.value.problem().encode()
    assert len(client.models) == 1
    with pytest.raises(RequestCancelled, match="the client has disconnected"):
        client.received[0].raise_if_cancelled()


@pytest.mark.parametrize(
    ("call", "models"),
    [
        (segment, ["mobile_sam_cached", "mobile_sam"]),
        (embed, ["mobile_sam_cached", "mobile_sam"]),
        (records, ["mobile_sam_everything"]),
    ],
)
def test_unknown_image_without_a_file_is_a_404_that_names_its_id(call, models):
    client = Client(outcomes=dict.fromkeys(models, UNKNOWN))
    with pytest.raises(ImageNotCached) as caught:
        call(client, KNOWN)
    problem = caught.value.problem()
    assert (problem.status, problem.slug) == (404, "image-not-cached")
    assert [(error.field, error.got) for error in problem.errors] == [("image_id", "an id")]
    assert client.models == models


@pytest.mark.parametrize("image", [NEW, LARGE], ids=["a file", "a large file"])
@pytest.mark.parametrize("image_id", [None, "an id"], ids=["id from the file", "known id"])
def test_file_of_an_image_that_is_no_longer_cached_is_sent_with_the_batch(image, image_id):
    client = Client(outcomes={"mobile_sam_everything": UNKNOWN}, records=b"[1]")
    assert records(client, replace(image, image_id=image_id, owner="me")) == [1]
    assert values(client, 1) == values(client, 0) | {"input_image": image.file}
    assert "input_image" not in values(client, 0)
    name = image_id or hashlib.sha256(image.file).hexdigest()
    assert [(received.image_id, received.owner) for received in client.received] == [(name, "me")] * 2


@pytest.mark.parametrize("model", ["mobile_sam_cached", "mobile_sam"])
@pytest.mark.parametrize(
    ("prompts", "field", "name"),
    [
        (ONE, "points[0][1]", "neg_coords[0]"),
        (TWO, "points[0][0]", "prompts[0].pos_coords[0]"),
        (TWO, "points[1][1]", "prompts[1].box"),
        (ONE, "input_image", "image"),
    ],
    ids=["one object", "first of two", "second of two", "not a point"],
)
def test_problem_names_points_and_image_by_their_request_paths(model, prompts, field, name):
    outcomes = {"mobile_sam_cached": UNKNOWN} | {model: problem_of(field=field)}
    with pytest.raises(RejectedByModel) as caught:
        segment(Client(outcomes=outcomes), replace(NEW, field="image"), prompts)
    problem = caught.value.problem()
    assert problem.status == 422
    assert problem.errors[0].field == name
    assert problem.detail == f"{name}: expected this, got that"


@pytest.mark.parametrize("call", [segment, embed, records])
@pytest.mark.parametrize("slow", ["mobile_sam_cached", "mobile_sam"])
def test_slow_triton_is_a_timeout(call, slow):
    client = Client(outcomes={"mobile_sam_cached": UNKNOWN}, delays={slow: 600, "mobile_sam_everything": 600})
    with pytest.raises(InferenceTimeout, match=r"no response within 0\.05 s"):
        call(client, timeout=0.05)


@CALLS
def test_second_call_gets_the_remaining_time(monkeypatch, call):
    timeouts, wait_for = [], asyncio.wait_for

    async def recorded(awaitable, timeout):
        timeouts.append(timeout)
        return await wait_for(awaitable, timeout)

    monkeypatch.setattr("utils.triton.segmenter.asyncio.wait_for", recorded)
    call(Client(outcomes={"mobile_sam_cached": UNKNOWN}, delays={"mobile_sam_cached": 0.05}))
    first, second = timeouts
    assert 30 < first <= 60
    assert second < first - 0.04


def test_excess_requests_wait_and_cancelled_ones_are_dropped():
    client = Client(mask=b"m", result=b"r", delays={"mobile_sam_cached": 0.05})
    segmenter = TritonSegmenter(client.infer, 60, {"mobile_sam_cached": 1})

    async def crowd() -> list[BaseException | object]:
        calls = [asyncio.create_task(segmenter.segment(KNOWN, job_of(ONE))) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert len(client.calls) == 2  # one in the model, one in transit
        calls[2].cancel()
        calls[3].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(crowd())
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [False, False, True, True, False]
    assert len(client.calls) == 3


@pytest.mark.parametrize("who", [ADDRESS, CALLER], ids=["address", "key"])
def test_slots_are_shared_fairly_between_callers(who):
    client = Client(mask=b"m", result=b"r", delays={"mobile_sam_cached": 0.01})
    segmenter = TritonSegmenter(client.infer, 60, {"mobile_sam_cached": 0})

    async def send(caller: str, image_id: str) -> None:
        who.set(caller)
        await segmenter.segment(ImageSource(None, image_id), job_of(ONE))

    async def crowd() -> None:
        requests = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]
        await asyncio.gather(*(asyncio.create_task(send(*each)) for each in requests))

    asyncio.run(crowd())
    assert [received.image_id for received in client.received] == ["1", "4", "2", "3"]
    assert [received.caller for received in client.received] == ["a", "b", "a", "a"]


def test_wait_for_a_slot_counts_towards_the_timeout():
    client = Client(delays={"mobile_sam_cached": 0.05})
    segmenter = TritonSegmenter(client.infer, 0.08, {"mobile_sam_cached": 0})

    async def crowd() -> list[BaseException | object]:
        calls = [segmenter.segment(KNOWN, job_of(ONE)) for _ in range(3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert InferenceTimeout in {type(answer) for answer in asyncio.run(crowd())}


NOT_LOADED = "Request for unknown model: 'mobile_sam_cached' version 7 is not found"


@pytest.mark.parametrize(("version", "sent"), [(None, ""), (7, "7")], ids=["the newest", "a version"])
def test_requested_version_is_sent_to_every_model(version, sent):
    client = Client(outcomes={"mobile_sam_cached": UNKNOWN}, result=b"r", mask=b"m")
    asyncio.run(segmenter_of(client).segment(NEW, replace(job_of(ONE), model_version=version)))
    asyncio.run(segmenter_of(client).embed(NEW, version))
    assert client.models == ["mobile_sam_cached", "mobile_sam"] * 2
    assert {call["model_version"] for call in client.calls} == {sent}


def test_requested_version_that_is_not_loaded_is_an_invalid_request():
    client = Client(InferenceServerException(NOT_LOADED, "400"))
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(segmenter_of(client).embed(NEW, 7))
    (error,) = caught.value.errors
    assert (error.field, error.got) == ("model_version", "7")
    with pytest.raises(NotLoaded):
        embed(client)
    with pytest.raises(NotLoaded):
        records(client)


@pytest.mark.parametrize("trace_id", ["", "a" * 32], ids=["untraced", "traced"])
async def test_only_traced_requests_have_spans_and_trace_headers(monkeypatch, trace_id):
    spans: list[str] = []

    @contextlib.contextmanager
    def span(model: str) -> Iterator[dict[str, str]]:
        spans.append(model)
        yield {"traceparent": "the trace"}

    monkeypatch.setattr("utils.observability.traces.wait_span", span)
    monkeypatch.setattr("utils.observability.traces.infer_span", span)
    TRACE_ID.set(trace_id)
    client = Client(result=b"{}")
    await segmenter_of(client).embed(NEW)
    assert spans == [name for name in client.models for _ in range(2) if trace_id]
    assert {call["headers"].get("traceparent") for call in client.calls} == {"the trace" if trace_id else None}
