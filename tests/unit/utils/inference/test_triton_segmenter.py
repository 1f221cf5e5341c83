"""Segmentation by Triton's models, with a fake client."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import aiohttp
import numpy as np
import orjson
import pytest
from tritonclient.utils import InferenceServerException

from orchestrator import tensors
from orchestrator.call import ModelRequest, Outcome, RequestCancelled
from orchestrator.costs import MIN_COSTLY_OBJECTS, Workload
from orchestrator.flood_log import FloodLog
from tests.unit.utils.edge.fakes import Clock
from utils import errors
from utils.api.inputs import to_inference_request
from utils.api.requests import SegmentOptions, SegmentRequest
from utils.inference.contents import chunks
from utils.inference.known_images import KnownImages
from utils.inference.request import ImageSource, InferenceRequest
from utils.inference.shares import share_of
from utils.inference.triton_segmenter import MAX_COSTLY_WAITING, TritonSegmenter, service_errors
from utils.observability.context import ADDRESS, KEY_NAME, RECORD, TRACE_ID, RequestRecord
from utils.observability.logs import logger

OPTIONS: dict[str, Any] = {"multimask_output": True, "mask_format": "png", "polygon_tolerance": 2.0}


def request_of(*objects: dict[str, Any]) -> InferenceRequest:
    fields = objects[0] if len(objects) == 1 else {"prompts": list(objects)}
    return to_inference_request(
        SegmentRequest.model_validate({**OPTIONS, "model_version": 7, **fields})
    )


NEW, KNOWN = ImageSource(b"file", None), ImageSource(None, "an id")
LARGE = ImageSource(b"file" * 300_000, None)
ONE = request_of({"pos_coords": [(1, 2)], "neg_coords": [(3, 4)]})
TWO = request_of({"pos_coords": [(1, 2)]}, {"box": (5, 6, 7, 8)})
MASKS = {
    "mask_input": np.ones((1, 256, 256), np.float32),
    "mask_input_object": np.array([1], np.int32),
}
TWO = replace(TWO, inputs={**TWO.inputs, **MASKS})
GRID = np.array([[1, 2], [3, 4]], np.float32)
BATCH = InferenceRequest(
    {"point_coords": GRID}, {"crop_box": (1, 2, 30, 40), "min_mask_region_area": 7}, 3
)
ALL_KNOWN = KnownImages(Path("/missing/folder/known"))
"""A table that cannot be used: any image may be known."""
UNKNOWN, COSTLY = Outcome(unknown_image=True), Outcome(costly=True)
CACHED_IS_UNKNOWN = {tensors.SEGMENT_CACHED: UNKNOWN}


def result_of(**parts: bytes) -> Any:
    """Return a stand-in for `tritonclient.http.InferResult`."""
    return SimpleNamespace(as_numpy=lambda name: np.array([parts.get(name, b"")], np.object_))


class Client:
    """Fake of Triton that stores the calls; like the models, it knows any image whose file it
    gets.
    """

    def __init__(
        self,
        error: BaseException | None = None,
        outcomes: dict[str, Outcome] | None = None,
        delays: dict[str, float] | None = None,
        **outputs: bytes,
    ) -> None:
        self.error, self.outcomes, self.delays = error, outcomes or {}, delays or {}
        self.outputs = {"mask": b"m", "result": b"r", **outputs}
        self.calls: list[dict] = []
        self.received: list[ModelRequest] = []
        self.read: list[dict[str, Any]] = []
        """Inputs of each call, as lists of numbers or as bytes."""

    async def infer(self, **call):
        self.calls.append(call)
        model = call["model_name"]
        inputs, (*outputs, _) = tensors.MODELS[model]
        sent = {entry.name(): entry for entry in call["inputs"]}
        received = ModelRequest(lambda name: array_of(sent[name]) if name in sent else None)
        self.received.append(received)
        read = {tensor.name: received.read(tensor.name) for tensor in inputs[1:]}
        self.read.append(
            {
                name: value[0] if value.dtype == object else value.ravel().tolist()
                for name, value in read.items()
                if value is not None
            }
        )
        await asyncio.sleep(self.delays.get(model, 0))
        if self.error:
            raise self.error
        outcome = self.outcomes.get(model)
        if outcome and not (outcome.unknown_image and "input_image" in self.read[-1]):
            return result_of(outcome=orjson.dumps(outcome))
        inline, outcome = received.send(
            [[self.outputs.get(output.name, b"")] for output in outputs]
        )
        parts = dict(zip((output.name for output in outputs), inline, strict=True))
        return result_of(**parts, outcome=orjson.dumps(outcome))

    @property
    def models(self) -> list[str]:
        return [call["model_name"] for call in self.calls]


def array_of(entry: Any) -> np.ndarray:
    data = entry._get_binary_data()
    if entry.datatype() == "BYTES":
        assert int.from_bytes(data[:4], "little") == len(data) - 4
        return np.array([data[4:]], np.object_)
    return np.frombuffer(data, {"FP32": np.float32, "INT32": np.int32}[entry.datatype()]).reshape(
        entry.shape()
    )


def segmenter_of(client: Client, timeout: float = 60, **instances: int) -> TritonSegmenter:
    return TritonSegmenter(client.infer, lambda: timeout, instances, known_images=ALL_KNOWN)


def segment(
    client: Client, image: ImageSource = NEW, request: InferenceRequest = ONE, timeout: float = 60
):
    return asyncio.run(segmenter_of(client, timeout).segment(image, request))


def embed(client: Client, image: ImageSource = NEW, timeout: float = 60):
    return asyncio.run(segmenter_of(client, timeout).embed(image))


def records(client: Client, image: ImageSource = NEW, timeout: float = 60):
    return asyncio.run(segmenter_of(client, timeout).records(image, BATCH))


ALL_CALLS = pytest.mark.parametrize("call", [segment, embed, records])


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
    client = Client(records=b"{}")
    call(client)
    assert client.models == [model]
    inputs, outputs = tensors.MODELS[model]
    declared = {tensor.name: tensor for tensor in inputs}
    assert set(declared) - set(client.read[0]) == {"call", "input_image", *absent}
    for entry in client.calls[0]["inputs"]:
        tensor = declared[entry.name()]
        assert (entry.datatype(), len(entry.shape())) == (tensor.datatype, len(tensor.shape))
        assert all(
            want in {-1, have} for want, have in zip(tensor.shape, entry.shape(), strict=True)
        )
    assert [output.name() for output in client.calls[0]["outputs"]] == [
        tensor.name for tensor in outputs
    ]
    assert client.calls[0]["headers"] == {"Accept-Encoding": "identity"}  # no gzip


@pytest.mark.parametrize(
    ("sent", "picture"), [(b"p", b"p"), (b"", None)], ids=["picture", "no picture"]
)
def test_values_and_outputs_are_passed_on_unchanged(sent, picture):
    client = Client(mask=b"m", picture=sent, result=b"r")
    answer = segment(client, KNOWN, TWO)
    assert (answer.mask, answer.picture, answer.result) == (b"m", picture, b"r")
    assert client.read == [
        {
            "point_coords": [1, 2, 0, 0, 5, 6, 7, 8],
            "point_labels": [1, -2, 2, 3],
            "mask_input": [1] * 256 * 256,
            "mask_input_object": [1],
        }
    ]
    options = {**SegmentOptions(**OPTIONS).model_dump(), "document": False, "offer_clip": True}
    assert (client.received[0].call.image_id, client.received[0].call.options) == ("an id", options)
    with pytest.raises(RequestCancelled):  # the file is closed, as no part is in it
        client.received[0].raise_if_cancelled()


@pytest.mark.parametrize("call", [segment, embed])
@pytest.mark.parametrize("image", [NEW, KNOWN, LARGE], ids=["a file", "an id", "a large file"])
@pytest.mark.parametrize(
    ("outcomes", "models"),
    [
        ({}, "cached"),
        (CACHED_IS_UNKNOWN, "cached any"),
        ({tensors.SEGMENT_CACHED: COSTLY}, "cached costly"),
        ({**CACHED_IS_UNKNOWN, tensors.SEGMENT: COSTLY}, "cached any costly"),
    ],
    ids=["cached", "new", "costly", "new and costly"],
)
def test_request_goes_from_model_to_model_by_their_outcomes(call, image, outcomes, models):
    client = Client(outcomes=outcomes)
    call(client, replace(image, owner="me", region=(1, 2, 30, 40)))
    names = {
        "cached": tensors.SEGMENT_CACHED,
        "any": tensors.SEGMENT,
        "costly": tensors.SEGMENT_COSTLY,
    }
    assert client.models == [names[each] for each in models.split()]
    file = {"input_image": image.file} if image.file else {}
    assert "input_image" not in client.read[0]
    assert all(read == client.read[0] | file for read in client.read[1:])
    name = image.image_id or hashlib.sha256(image.file or b"").hexdigest()
    for model, received in zip(client.models, client.received, strict=True):
        assert (received.call.image_id, received.call.owner, received.call.options) == (
            name,
            "me",
            client.received[0].call.options,
        )
        assert received.call.region == [1, 2, 30, 40]
        assert received.call.accepts_costly == (model == tensors.SEGMENT_COSTLY)


@pytest.mark.parametrize("is_costly", [False, True], ids=["", "costly"])
async def test_file_of_a_new_image_goes_to_the_encoder_at_once_and_later_to_the_known_images(
    is_costly,
):
    client = Client(outcomes={tensors.SEGMENT: COSTLY} if is_costly else {}, records=b"{}")
    segmenter = replace(segmenter_of(client), known_images=KnownImages(None))
    for image in (NEW, NEW, replace(NEW, owner="another"), replace(KNOWN, owner="a third")):
        await segmenter.segment(image, ONE)
    new = [tensors.SEGMENT, *([tensors.SEGMENT_COSTLY] if is_costly else [])]
    assert client.models == [*new, tensors.SEGMENT_CACHED, *new, tensors.SEGMENT_CACHED]
    assert all(read["input_image"] == NEW.file for read in client.read[: len(new)])
    assert "input_image" not in client.read[len(new)]


async def test_batch_on_a_new_image_has_its_file_at_once():
    client = Client(records=b"{}")
    segmenter = replace(segmenter_of(client), known_images=KnownImages(None))
    for _ in range(2):
        await segmenter.records(NEW, BATCH)
    assert [read.get("input_image") for read in client.read] == [NEW.file, None]


async def test_image_whose_request_failed_is_still_new():
    client = Client(InferenceServerException("failed", status="500"))
    segmenter = replace(segmenter_of(client), known_images=KnownImages(None))
    for _ in range(2):
        with pytest.raises(errors.InferenceFailed):
            await segmenter.segment(NEW, ONE)
    assert client.models == [tensors.SEGMENT] * 2


@pytest.mark.parametrize("objects", [MIN_COSTLY_OBJECTS - 1, MIN_COSTLY_OBJECTS])
def test_many_objects_go_to_the_costly_model_at_once(objects):
    client = Client()
    segment(client, NEW, request_of(*[{"pos_coords": [(1, 1)]}] * objects))
    costly = Workload(objects=objects, masks=objects).is_costly(1)
    assert costly == (objects == MIN_COSTLY_OBJECTS)
    assert client.models == [tensors.SEGMENT_COSTLY if costly else tensors.SEGMENT_CACHED]


@pytest.mark.parametrize(
    ("seconds", "wait_s", "rejected"), [(0.01, 2, 0), (60, 0.01, 1)], ids=["room", "no room"]
)
async def test_costly_request_waits_for_room_in_a_full_queue(
    monkeypatch, seconds, wait_s, rejected
):
    monkeypatch.setattr("utils.inference.triton_segmenter.FULL_QUEUE_WAIT_S", wait_s)
    segmenter = segmenter_of(Client(delays={tensors.SEGMENT_COSTLY: seconds}), mobile_sam_costly=0)
    request = request_of(*[{"pos_coords": [(1, 1)]}] * MIN_COSTLY_OBJECTS)
    tasks = [
        asyncio.create_task(segmenter.segment(NEW, request))
        for _ in range(1 + share_of(MAX_COSTLY_WAITING, 1) + 1)
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    failures = [task.exception() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(error, errors.Overloaded) for error in failures) == rejected


async def test_new_images_that_wait_for_the_encoder_are_limited(monkeypatch):
    monkeypatch.setattr("utils.inference.triton_segmenter.FULL_QUEUE_WAIT_S", 0.01)
    client = Client(outcomes=CACHED_IS_UNKNOWN, delays={tensors.SEGMENT: 60})
    segmenter = replace(segmenter_of(client, mobile_sam=0), max_new_images=4)
    waiting = share_of(4, 1)
    tasks = [asyncio.create_task(segmenter.embed(NEW)) for _ in range(1 + waiting + 1)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    refused = [task.exception() for task in tasks if task.done()]
    assert [str(error) for error in refused] == [
        "new images that wait: a caller's share is 3, this one has 3 and asks for 1; retry later"
    ]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_large_parts_stay_in_the_file_until_they_are_read():
    mask, result = b"m" * 70_000, b"r" * 600_000
    client = Client(mask=mask, picture=b"p", result=result)
    answer = segment(client)
    client.received[0].raise_if_cancelled()
    assert [bytes(part) for part in (answer.mask, answer.picture, answer.result)] == [
        mask,
        b"p",
        result,
    ]
    assert [len(piece) for piece in chunks(answer.result)] == [262_144, 262_144, 75_712]
    del answer
    with pytest.raises(RequestCancelled, match="the client has disconnected"):
        client.received[0].raise_if_cancelled()


@ALL_CALLS
def test_failure_is_final_and_tells_the_models_that_the_caller_is_gone(call):
    client = Client(InferenceServerException("/secret/path failed", status="500"))
    with pytest.raises(errors.InferenceFailed):
        call(client)
    assert len(client.models) == 1
    with pytest.raises(RequestCancelled, match="the client has disconnected"):
        client.received[0].raise_if_cancelled()


@pytest.mark.parametrize(
    ("call", "models"),
    [
        (segment, [tensors.SEGMENT_CACHED, tensors.SEGMENT]),
        (embed, [tensors.SEGMENT_CACHED, tensors.SEGMENT]),
        (records, [tensors.EVERYTHING]),
    ],
)
def test_unknown_image_without_a_file_is_a_404_that_names_its_id(call, models):
    client = Client(outcomes=dict.fromkeys(models, UNKNOWN))
    with pytest.raises(errors.ImageNotCached) as caught:
        call(client, KNOWN)
    problem = caught.value.problem()
    assert (problem.status, problem.slug) == (404, "image-not-cached")
    assert [(error.field, error.got) for error in problem.errors] == [("image_id", "an id")]
    assert client.models == models


@pytest.mark.parametrize(
    "image", [NEW, LARGE, replace(NEW, image_id="an id")], ids=["file", "large file", "known id"]
)
def test_batch_goes_to_the_version_that_encoded_the_image_first_without_its_file(image):
    client = Client(outcomes={tensors.EVERYTHING: UNKNOWN}, records=b'{"masks": [{"area": 1}]}')
    assert records(client, replace(image, owner="me")) == {"masks": [{"area": 1}]}
    assert client.read == [
        {"point_coords": [1, 2, 3, 4]},
        {"point_coords": [1, 2, 3, 4], "input_image": image.file},
    ]
    name = image.image_id or hashlib.sha256(image.file).hexdigest()
    assert [(received.call.image_id, received.call.owner) for received in client.received] == [
        (name, "me")
    ] * 2
    assert client.received[0].call.options == {
        "crop_box": [1, 2, 30, 40],
        "min_mask_region_area": 7,
    }
    assert {call["model_version"] for call in client.calls} == {"3"}


@pytest.mark.parametrize(
    ("prompts", "field", "name"),
    [
        (ONE, "points[0][1]", "neg_coords[0]"),
        (TWO, "points[1][1]", "prompts[1].box"),
        (ONE, "masks[0]", "mask_input"),
        (TWO, "masks[1]", "prompts[1].mask_input"),
        (ONE, "input_image", "image"),
    ],
    ids=["one object", "second of two", "mask", "mask of the second", "not a prompt"],
)
def test_problem_is_final_and_names_points_and_image_by_their_request_paths(prompts, field, name):
    problem: dict[str, Any] = {"status": 422, "slug": "invalid-image", "title": "a title"}
    problem["errors"] = [{"field": field, "expected": "this", "got": "that"}]
    client = Client(outcomes={tensors.SEGMENT_CACHED: Outcome(problem=problem)})
    with pytest.raises(errors.RejectedByModel) as caught:
        segment(client, replace(NEW, field="image"), prompts)
    shown = caught.value.problem()
    assert (shown.status, shown.slug, shown.errors[0].field) == (422, "invalid-image", name)
    assert shown.detail == f"{name}: expected this, got that"
    assert client.models == [tensors.SEGMENT_CACHED]


@ALL_CALLS
def test_models_that_are_slow_together_are_a_timeout(call):
    delays = {tensors.SEGMENT_CACHED: 0.03, tensors.SEGMENT: 0.03, tensors.EVERYTHING: 600}
    with pytest.raises(errors.InferenceTimeout, match=r"no response within 0\.05 s"):
        call(Client(outcomes=CACHED_IS_UNKNOWN, delays=delays), timeout=0.05)


async def test_triton_gets_one_request_more_than_a_model_has_processes():
    client = Client(delays={tensors.SEGMENT_CACHED: 0.05})
    segmenter = segmenter_of(client, 0.12, mobile_sam_cached=1)
    calls = [asyncio.create_task(segmenter.segment(KNOWN, ONE)) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert len(client.calls) == 2
    with pytest.raises(errors.InferenceTimeout):  # the wait for a slot counts
        await asyncio.gather(*calls)


@pytest.mark.parametrize("who", [ADDRESS, KEY_NAME], ids=["address", "key"])
async def test_slots_are_shared_fairly_between_callers(who):
    client = Client(delays={tensors.SEGMENT_CACHED: 0.01})
    segmenter = segmenter_of(client, mobile_sam_cached=0)

    async def send(caller: str, image_id: str) -> None:
        who.set(caller)
        await segmenter.segment(ImageSource(None, image_id), ONE)

    requests = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]
    await asyncio.gather(*(asyncio.create_task(send(*each)) for each in requests))
    assert [received.call.image_id for received in client.received] == ["1", "4", "2", "3"]
    assert [received.call.caller for received in client.received] == ["a", "b", "a", "a"]


async def test_requested_version_is_sent_to_every_model():
    for version, sent in ((None, ""), (7, "7")):
        client = Client(outcomes=CACHED_IS_UNKNOWN)
        await segmenter_of(client).segment(NEW, replace(ONE, model_version=version))
        await segmenter_of(client).embed(NEW, version)
        assert client.models == [tensors.SEGMENT_CACHED, tensors.SEGMENT] * 2
        assert {call["model_version"] for call in client.calls} == {sent}


def test_requested_version_that_is_not_loaded_is_an_invalid_request():
    message = "Request for unknown model: 'mobile_sam_cached' version 7 is not found"
    client = Client(InferenceServerException(message, "400"))
    with pytest.raises(errors.InvalidRequest) as caught:
        asyncio.run(segmenter_of(client).embed(NEW, 7))
    (error,) = caught.value.errors
    assert (error.field, error.got) == ("model_version", "7")
    for call in (embed, records):
        with pytest.raises(errors.NotLoaded):
            call(client)


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
    client = Client()
    await segmenter_of(client).embed(NEW)
    assert spans == [name for name in client.models for _ in range(2) if trace_id]
    assert {call["headers"].get("traceparent") for call in client.calls} == {
        "the trace" if trace_id else None
    }


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "unexpected shape for input 'NUMBERS' at /secret: expected [1], got [2]",
            errors.InferenceFailed,
        ),
        ("Failed to process: Stub process '/secret' is not healthy.", errors.InferenceUnavailable),
        ("Request for unknown model: '/secret' is not ready", errors.NotLoaded),
        (
            "/secret: Request for unknown model: 'mobile_sam_encoder' is not found",
            errors.InferenceUnavailable,
        ),
        ("'/secret' is not ready", errors.InferenceUnavailable),
        ("Failed to increase the shared memory pool of /secret", errors.InferenceUnavailable),
        ("Failed to allocate memory for requested buffer of size 7", errors.InferenceUnavailable),
        ("CUDA failure 2: out of memory ; GPU=0", errors.InferenceUnavailable),
        ("request cancelled: /secret", errors.InferenceTimeout),
        (aiohttp.ClientConnectionError("/secret"), errors.InferenceUnavailable),
        (ConnectionResetError("/secret"), errors.InferenceUnavailable),
    ],
    ids=str,
)
def test_unknown_triton_errors_become_5xx_without_leaking_text(error, expected, caplog):
    if isinstance(error, str):
        error = InferenceServerException(error, "500")
    report_fault = Mock()
    with pytest.raises(errors.ServiceError) as caught, service_errors(lambda: 30, report_fault):
        raise error
    assert report_fault.call_count == ("Stub process" in str(error))
    assert type(caught.value) is expected
    assert caught.value.status >= 500
    assert "secret" not in caught.value.detail
    assert str(error).rpartition("] ")[2] in caplog.text


@pytest.fixture
def record():
    """Context of a request."""
    token = RECORD.set(found := RequestRecord("POST", "/mobile_sam"))
    yield found
    RECORD.reset(token)


def test_record_of_a_request_gets_image_and_weights(record):
    outcome = Outcome((0, 0, 0), weights="official")
    client = Client(outcomes={tensors.SEGMENT_CACHED: outcome})
    asyncio.run(segmenter_of(client).segment(NEW, ONE))
    assert (record.image_id, record.weights) == (hashlib.sha256(b"file").hexdigest(), "official")


def test_record_of_a_request_has_no_text_of_the_caller_and_nothing_of_background_work(record):
    asyncio.run(segmenter_of(Client()).segment(KNOWN, ONE))
    asyncio.run(segmenter_of(Client()).embed(NEW, background=True))
    assert (record.image_id, record.weights) == ("", "")


@ALL_CALLS
@pytest.mark.parametrize("scale_down", [False, True])
def test_model_is_told_whether_the_image_may_be_worked_on_at_a_smaller_size(call, scale_down):
    client = Client(outcomes=CACHED_IS_UNKNOWN, records=b"{}")
    call(client, replace(NEW, scale_down=scale_down))
    assert client.received
    assert {received.call.scale_down for received in client.received} == {scale_down}


def test_errors_of_an_outage_are_written_a_few_times_and_then_counted(monkeypatch, caplog):
    log = FloodLog(logger, max_lines=5, window_s=10, clock=Clock(), level=logging.ERROR)
    monkeypatch.setattr("utils.inference.triton_segmenter.ERROR_LOG", log)
    raised = (
        OSError("refused"),
        asyncio.TimeoutError(),
        InferenceServerException("a failure", "500"),
    )
    for error in raised * 100:
        with pytest.raises(errors.ServiceError), service_errors(lambda: 1.0, lambda: None):
            raise error
    lines = (
        "Triton cannot be reached",
        "Triton did not respond",
        "Triton responded with status 500",
    )
    assert [caplog.text.count(line) for line in lines] == [5, 5, 5]
    log.summarise_ended(all_windows=True)
    assert caplog.text.count("95 more in") == 3
    assert {record.levelname for record in caplog.records} == {"ERROR"}
