"""Batches over images and results that may be anywhere."""

import asyncio
import errno
from typing import Any

import httpx
import pytest

from mobile_sam_client import AsyncClient, Weights, batches, datasets
from mobile_sam_client.batches import Batch, CannotWrite, LabelledImage, check_prompts
from tests.unit.client.mobile_sam_client import fake_service as fake
from tests.unit.client.mobile_sam_client.commands.fake_sam import FakeSam, picture

REQUESTS: dict[str, dict[str, Any]] = {
    name: {"everything": {}} for name in ("a.png", "b.png", "c.png")
}


class Results:
    """Images and results in memory. An error in place of an image or a result is raised."""

    def __init__(self) -> None:
        self.images: dict[str, Any] = {name: picture(seed) for seed, name in enumerate(REQUESTS)}
        self.earlier: dict[str, LabelledImage] = {}
        self.saved: dict[str, LabelledImage] = {}
        self.save_error: OSError | None = None

    def load(self, name: str, weights: Weights | None) -> tuple[bytes, LabelledImage | None]:
        assert weights == Weights(**fake.WEIGHTS)
        if isinstance(self.images[name], OSError):
            raise self.images[name]
        return self.images[name], self.earlier.get(name)

    def save(self, file: bytes, result: LabelledImage, weights: Weights | None) -> None:
        assert (file, weights) == (self.images[result.file_name], Weights(**fake.WEIGHTS))
        if self.save_error:
            raise self.save_error
        self.saved[result.file_name] = result


def run(results: Results, **options: Any) -> Batch:
    """Run a batch to its end with one image at a time."""
    batch = Batch(REQUESTS, results, **options)

    async def finish() -> None:
        transport = httpx.MockTransport(FakeSam())
        async with AsyncClient(fake.URL, transport=transport, retries=0) as client:
            await batch.run(client, concurrency=1)

    asyncio.run(finish())
    return batch


def test_results_are_saved_and_those_of_an_earlier_run_kept():
    results = Results()
    results.earlier["b.png"] = LabelledImage("b.png", 60, 40, [])
    batch = run(results)
    assert batch.done == {"a.png": False, "b.png": True, "c.png": False}
    assert batch.failures == {}
    assert list(results.saved) == ["a.png", "c.png"]
    image = results.saved["a.png"]
    assert (image.width, image.height, len(image.objects)) == (60, 40, 2)
    assert "point" not in image.objects[0]


def test_points_are_added_on_request():
    results = Results()
    run(results, with_points=True)
    assert results.saved["a.png"].objects[0]["point"] == (1.5, 0.5)


def test_unreadable_image_does_not_stop_a_batch():
    results = Results()
    results.images["a.png"] = OSError(errno.EIO, "Input/output error", "a.png")
    batch = run(results)
    assert batch.failures == {"a.png": "Input/output error"}
    assert list(batch.done) == ["b.png", "c.png"]


@pytest.mark.parametrize(
    ("code", "stops"),
    [(errno.ENOSPC, True), (errno.EACCES, False)],
    ids=["full disk", "no permission"],
)
def test_batch_stops_if_no_result_can_be_written(code, stops):
    results = Results()
    results.save_error = CannotWrite("a.json", OSError(code, "reason"))
    if stops:
        with pytest.raises(CannotWrite):
            run(results)
    else:
        assert set(run(results).failures.values()) == {"cannot write a.json: reason"}


def test_null_fields_of_prompts_are_left_out():
    assert check_prompts({"box": [1, 2, 3, 4], "labels": None}) == [{"box": [1, 2, 3, 4]}]


@pytest.mark.parametrize("module", [batches, datasets], ids=["batches", "datasets"])
def test_all_is_sorted_and_complete(module):
    names = [name for name in module.__all__ if hasattr(module, name)]
    assert names == module.__all__
    assert names == sorted(names, key=lambda name: (name[0].islower(), name))
