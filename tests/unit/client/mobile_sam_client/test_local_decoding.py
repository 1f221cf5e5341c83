"""Local decoding: when the service answers all the same, changes of weights, and the steps after
the decoder.
"""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from mobile_sam_client import Client, Prompt, _local_decoding
from orchestrator.masks import remove_small_regions, upsample
from tests.unit.client.mobile_sam_client import fake_service as fake
from tests.unit.client.mobile_sam_client.fake_service import FILE, make_reply, problem_reply

CLICK: dict[str, Any] = {"pos_coords": (1, 2)}
TENSORS = {
    "image_embeddings": np.arange(6, dtype=np.float16).reshape(1, 2, 3),
    "more": np.ones((2, 1), np.float16),
}
ABOUT = {"frame_width": "1024", "frame_height": "683", "squashed": "false"}
FETCHED = ["embed", "embeddings", "info", "decoder.onnx"]
FIRST, SECOND = "1" * 64, "2" * 64


class LocalService(fake.FakeService):
    """A service whose weights can change; `replies` by path take precedence."""

    def __init__(self) -> None:
        super().__init__()
        self.sha256, self.prompts, self.special = (
            FIRST,
            fake.DESCRIPTOR["prompts"],
            dict[str, fake.Reply](),
        )

    def __call__(self, request):
        self.requests.append(request)
        weights = {**fake.WEIGHTS, "sha256": self.sha256}
        descriptor = {**fake.DESCRIPTOR, "prompts": self.prompts}
        loaded = {**fake.INFO["loaded"][1], "weights": weights, "descriptor": descriptor}
        about = {**ABOUT, "weights_sha256": self.sha256}
        replies = {
            "info": fake.json_reply({**fake.INFO, "loaded": [loaded]}),
            "embed": fake.json_reply({**fake.IMAGE, "weights": weights}),
            "mobile_sam": fake.segment_reply(),
            "embeddings": make_reply(save(TENSORS, about), "application/octet-stream"),
            "decoder.onnx": make_reply(
                request.url.params.get("weights", "").encode(), "application/octet-stream"
            ),
        }
        name = request.url.path.split("/")[1]
        return self.special.get(name, replies[name])(request)

    def paths(self) -> list[str]:
        """Return the paths asked for since the last call."""
        found = [request.url.path.split("/")[1] for request in self.requests]
        self.requests.clear()
        return found


@pytest.fixture
def service() -> LocalService:
    return LocalService()


@pytest.fixture(autouse=True)
def ran(monkeypatch) -> list[str]:
    """Weights of the decoders that ran. Their masks are full."""
    weights: list[str] = []

    def session(file: bytes, providers: list[str]) -> SimpleNamespace:
        def run(outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
            assert all((inputs[name] == array).all() for name, array in TENSORS.items())
            weights.append(file.decode())
            count = 1 if outputs[0] == "single_masks" else 4
            return [np.ones((1, count, 256, 256), np.float32), np.ones((1, 4), np.float32)]

        return SimpleNamespace(run=run)

    monkeypatch.setattr("onnxruntime.InferenceSession", session)
    return weights


def test_image_is_encoded_and_fetched_once(make, service):
    client = make(service, local=True)
    for image in (FILE, FILE, client.embed(FILE)):
        found = client.segment(image, **CLICK)
        assert (found.area, found.box_xyxy, found.weights.sha256, found.picture_png) == (
            24,
            (0, 0, 6, 4),
            FIRST,
            None,
        )
    many = client.segment_many(FILE, [Prompt(**CLICK)] * 2, multimask_output=True)
    assert [len(each.candidates) for each in many] == [3, 3]
    assert service.paths() == ["embed", *FETCHED, *FETCHED[:2]]


@pytest.mark.parametrize(
    ("special", "again"),
    [
        ({"embeddings": problem_reply(404, "not-found")}, ["mobile_sam"]),
        ({"decoder.onnx": problem_reply(404, "not-found")}, ["mobile_sam"]),
        ({"decoder.onnx": problem_reply(409, "other-weights")}, FETCHED),
        ({"embeddings": problem_reply(404, "image-not-cached")}, FETCHED),
    ],
    ids=["off", "no decoder", "weights changed", "image dropped"],
)
def test_service_answers_while_it_offers_no_decoder(make, service, special, again):
    client = make(service, local=True)
    service.special = special
    assert client.segment(FILE, **CLICK).area == 3
    assert service.paths()[-1] == "mobile_sam"
    service.special = {}
    client.segment(FILE, **CLICK)
    assert service.paths() == again


def test_weights_that_do_not_accept_all_prompts_are_left_to_the_service(make, service):
    service.prompts = ["boxes"]
    client = make(service, local=True)
    for _ in range(2):
        client.segment(FILE, **CLICK)
    assert service.paths() == ["embed", "embeddings", "info", "mobile_sam", "mobile_sam"]


def test_embeddings_are_decoded_by_their_own_weights_only(make, service, ran):
    client = make(service, local=True)
    client.segment(FILE, **CLICK)
    service.sha256 = SECOND
    client.segment(FILE, **CLICK)  # not known to have changed
    assert client.segment(b"another", **CLICK).weights.sha256 == SECOND
    assert client.segment(FILE, **CLICK).weights.sha256 == SECOND
    assert ran == [FIRST, FIRST, SECOND, SECOND]
    assert service.paths().count("decoder.onnx") == 2
    embeddings = make_reply(
        save(TENSORS, ABOUT | {"weights_sha256": FIRST}), "application/octet-stream"
    )
    service.special = {"embeddings": embeddings}  # changed between two requests
    assert client.segment(b"a third", **CLICK).area == 3
    assert len(ran) == 4


def test_service_clips_what_is_outside_the_image(make, service):
    client = make(service, local=True)
    assert client.segment(FILE, **CLICK, clip=True).area > 0
    assert "mobile_sam" not in service.paths()
    client.segment(FILE, pos_coords=(-1, 1), clip=True)
    client.segment(FILE, **CLICK, region=[-1, -1, 40, 40], clip=True)
    assert service.paths().count("mobile_sam") == 2


def test_number_of_embeddings_is_limited(make, service, monkeypatch):
    monkeypatch.setattr(_local_decoding, "MAX_IMAGES", 2)
    client = make(service, local=True)
    for image in (b"a", b"b", b"c", b"b", b"a"):
        client.segment(image, **CLICK)
    assert service.paths().count("embeddings") == 4


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "mobile_sam_client._local_decoding")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install '\./client\[local\]'"):
        Client(local=True)


@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("min_area", [0, 40, 10**6])
@pytest.mark.parametrize("threshold", [0, 3])
def test_mask_is_that_of_the_service(squashed, min_area, threshold):
    logits = (
        np.random.default_rng(1)
        .normal(0, 1, (16, 16))
        .repeat(16, 0)
        .repeat(16, 1)
        .astype(np.float32)
    )
    size_hw, frame_hw = (90, 120), (1024, 1024) if squashed else (768, 1024)
    expected = upsample(logits, None if squashed else frame_hw, size_hw) > threshold
    expected, _ = remove_small_regions(expected, min_area)
    image: Any = SimpleNamespace(
        region=None, height=90, width=120, frame_wh=frame_hw[::-1], squashed=squashed
    )
    mask = _local_decoding._LocalImage._mask(image, logits, threshold, min_area)
    assert mask["rle"] == fake.rle(expected)
    assert mask["area"] == expected.sum()
