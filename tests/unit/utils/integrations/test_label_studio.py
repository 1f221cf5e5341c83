"""Label Studio's requests and configurations, with a fake segmenter and without a Label Studio."""

import asyncio
import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from yarl import URL

from orchestrator.masks import rle
from tests.unit.client.mobile_sam_client.test_results import segmentation
from tests.unit.utils.integrations.replay import Replay
from utils.errors import ImageNotFetched, InvalidRequest
from utils.integrations import label_studio
from utils.integrations.label_studio import ADAPTER
from utils.integrations.label_studio_bodies import PIECE_BYTES, without_numbers
from utils.integrations.label_studio_config import LabelConfig, brush_rle, regions
from utils.integrations.label_studio_images import TaskImages
from utils.integrations.rasters import run_lengths
from utils.observability.context import KEY_NAME
from utils.settings import Settings

CONFIG = """<View><Image name="image" value="$img"/>
<BrushLabels name="brush" toName="image"><Label value="Cat"/><Label value="Dog" alias="dog"/></BrushLabels>
<KeyPointLabels name="point" toName="image" smart="true"><Label value="Cat"/><Label value="Bird"/></KeyPointLabels>
<RectangleLabels name="box" toName="image" smart="true"><Label value="Cat"/><Label value="Bird"/></RectangleLabels>
</View>"""
TWO_IMAGES = CONFIG.replace(
    "</View>",
    """<Image name="second" value="$img2"/>
<BrushLabels name="brush2" toName="second"><Label value="Cat"/></BrushLabels></View>""",
)
MASK = np.zeros((30, 40), bool)
MASK[10:20, 5:15] = True
RECORD = {"score": 0.9, "area": 100, "box": [5, 10, 15, 20], "rle": rle(MASK)}
SETTINGS = Settings(label_studio_url="http://localhost:8080", label_studio_api_key="token")


def decoded_brush(data: bytes) -> np.ndarray:
    """Decode as the JavaScript package rle-pack does."""
    bits = iter("".join(f"{byte:08b}" for byte in data))

    def read(count: int) -> int:
        return int("".join(itertools.islice(bits, count)), 2)

    total, word = read(32), read(5) + 1
    sizes = [read(4) + 1 for _ in range(4)]
    values: list[int] = []
    while len(values) < total:
        same = read(1)
        count = read(sizes[read(2)]) + 1
        values += [read(word)] * count if same else [read(word) for _ in range(count)]
    return np.array(values, np.uint8)


RNG = np.random.default_rng(0)
MASKS = [RNG.random(RNG.integers(1, 25, 2)) < RNG.random() for _ in range(1000)]
LONG_RUNS = np.pad(np.ones((150, 150), bool), ((150, 0), (0, 150)))


def test_brush_decodes_to_the_mask_and_is_that_of_the_client():
    for mask in [*MASKS, LONG_RUNS, ~LONG_RUNS]:
        encoded = brush_rle(run_lengths(mask))
        assert (decoded_brush(encoded).reshape(*mask.shape, 4) == 255 * mask[..., None]).all()
        assert list(encoded) == segmentation(mask).to_label_studio("Cat")[0]["value"]["rle"]


@pytest.mark.parametrize(("label", "name"), [("Cat", "brush"), ("dog", "brush"), ("Bird", "box")])
def test_mask_goes_to_the_tag_with_the_label(label, name):
    assert LabelConfig.parse(CONFIG).output("image", label).name == name


@pytest.mark.parametrize(
    ("config", "label", "text"),
    [
        (CONFIG, "Horse", '<Label value="Horse"/>'),
        ("<View/>", "Cat", "<Image"),
        ("<View>", "Cat", "XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><View/>', "Cat", "document type"),
    ],
)
def test_config_without_a_tag_for_the_mask_says_what_is_missing(config, label, text):
    with pytest.raises(InvalidRequest) as error:
        LabelConfig.parse(config).output("image", label)
    assert text in str(error.value)


def test_label_belongs_to_the_innermost_tag():
    """The time to read nested tags is linear: each label is kept once."""
    config = "<View>" + '<BrushLabels name="b" toName="i"><Label value="a"/><Label value="b"/>' * 90
    config += "</BrushLabels>" * 90 + '<Image name="i" value="$i"/></View>'
    assert [list(control.labels) for control in LabelConfig.parse(config).controls] == [
        ["a", "b"]
    ] * 90


@pytest.mark.parametrize(
    ("config", "text"),
    [
        pytest.param("<View>" + "<Label/>" * 10_000, "at most 10000 tags", id="tags"),
        pytest.param("<View>" * 101, "100 in one another", id="depth"),
        pytest.param(
            "<View>" + "<BrushLabels/>" * 101, "at most 100 tags for images and masks", id="objects"
        ),
    ],
)
def test_config_beyond_a_limit_is_refused_without_reading_the_rest(config, text):
    with pytest.raises(InvalidRequest, match=text):
        LabelConfig.parse(config + "not closed")


def test_polygons_and_rectangles_are_in_percent():
    config = LabelConfig.parse(CONFIG.replace("BrushLabels", "PolygonLabels"))

    def value(label, **changes):
        document = {"width": 40, "height": 30}
        found = regions(RECORD | changes, "image", config.output("image", label), label, document)
        return [region["value"] for region in found]

    (polygon,), (box,) = value("Cat"), value("Bird")
    assert polygon["polygonlabels"] == ["Cat"]
    corners = sorted(polygon["points"])
    assert np.allclose(
        corners, [[12.5, 100 / 3], [12.5, 200 / 3], [37.5, 100 / 3], [37.5, 200 / 3]]
    )
    assert np.allclose(
        [box[name] for name in ("x", "y", "width", "height")], [12.5, 100 / 3, 25, 100 / 3]
    )
    assert value("Cat", area=0) == []


class FakeFetcher:
    """Fetcher that records URLs and authorizations, and answers from a table."""

    def __init__(self, **answers):
        self.calls, self.answers = [], answers

    async def fetch(self, url, headers=lambda _: {}, method="GET", json=None):
        authorization = headers(URL(self.answers.get("redirect", url))).get("Authorization", "")
        self.calls.append((method, url, authorization))
        if method == "POST":
            assert json == {"refresh": "a.b.c"}
            return b'{"access": "access-%d"}' % len(self.calls)
        error = ImageNotFetched("refused")
        error.answered = 401
        if authorization in self.answers.get("refused", ()):
            raise error
        return b"file of " + url.encode()


@pytest.fixture
def fetcher():
    return FakeFetcher()


@pytest.fixture
def replay(fetcher, monkeypatch):
    images = TaskImages(SETTINGS, fetcher)
    monkeypatch.setattr(label_studio, "task_images", lambda _: images)
    fake = Replay(ADAPTER, SETTINGS)
    fake.masks = [RECORD]
    token = KEY_NAME.set("ann")
    yield fake
    KEY_NAME.reset(token)


@pytest.fixture
def ask(replay):
    """Return a function that posts to the adapter."""
    return lambda path, body: replay.post(f"/label-studio/{path}", json=body)


def drawn(kind="keypoint", positive=True, **value):
    size = {"original_width": 40, "original_height": 30, "image_rotation": 0}
    labels = {f"{kind}labels": ["Cat"]}
    return {
        "type": f"{kind}labels",
        "to_name": "image",
        "value": value | labels,
        "is_positive": positive,
        **size,
    }


BOX = {"x": 10, "y": 10, "width": 50, "height": 80}


def body(*regions, tasks=None, config=CONFIG):
    tasks = tasks or [
        {"id": 7, "data": {"img": "/data/upload/1/a.jpg"}, "annotations": [], "project": 1}
    ]
    context = {"result": list(regions)} if regions else None
    return {
        "tasks": tasks,
        "project": "1.2",
        "label_config": config,
        "params": {"context": context, "login": None},
    }


def test_points_and_box_of_a_click_become_pixels(ask, replay):
    # Beyond the image, at whose edge it ends.
    box = drawn("rectangle", x=60, y=50, width=50, height=80)
    regions = [drawn(x=50, y=50, width=1), drawn(x=25, y=100, positive=False), box]
    (prediction,) = ask("predict", body(*regions)).json()["results"]
    (result,) = prediction["result"]
    assert (result["type"], result["from_name"], result["value"]["brushlabels"]) == (
        "brushlabels",
        "brush",
        ["Cat"],
    )
    assert replay.prompts() == ([[[20, 15], [10, 30], [24, 15], [40, 30]]], [[1, 0, 2, 3]])


def test_second_click_does_not_fetch_and_a_lost_embedding_fetches_again(ask, replay, fetcher):
    click = body(drawn(x=50, y=50))
    for _ in range(2):
        ask("predict", click)
    assert [source.file is None for source in replay.sources] == [False, True]
    assert {source.owner for source in replay.sources} == {"ann"}
    assert fetcher.calls == [("GET", "http://localhost:8080/data/upload/1/a.jpg", "Token token")]
    replay.lost.add("id")
    assert ask("predict", click).json()["results"][0]["result"]
    assert len(fetcher.calls) == 2


def test_callers_do_not_share_the_images_of_a_url(ask, fetcher):
    click = body(drawn(x=50, y=50))
    ask("predict", click)
    token = KEY_NAME.set("ben")
    ask("predict", click)
    KEY_NAME.reset(token)
    assert len(fetcher.calls) == 2


@pytest.mark.parametrize(
    ("request_body", "text"),
    [
        (body(drawn("ellipse", x=1, y=1)), "a keypoint or a rectangle"),
        (body(drawn(x=1, y=1) | {"image_rotation": 90}), "not rotated"),
        (body(drawn("rectangle", **BOX, rotation=90)), "not rotated, got 90 degrees"),
        (body(drawn("rectangle", **BOX, rotation="x")), "not rotated, got nan degrees"),
        (body(drawn(x=1, y=1) | {"original_width": 41}), "40 x 30, got 41 x 30"),
        (body(drawn(x="a", y=1)), "in percent"),
        (
            body(drawn(x=1, y=1), tasks=[{"data": {"img": "http://a/#" + "a" * 8192}}]),
            "data.img: expected a URL of",
        ),
        ({"tasks": [], "label_config": CONFIG}, "tasks"),
    ],
)
def test_error_of_a_prediction_is_a_sentence_with_status_200(ask, request_body, text):
    answer = ask("predict", request_body)
    assert answer.status_code == 200
    (result,) = answer.json()["results"]
    assert (result["result"], text in result["error"]) == ([], True)


def test_tasks_without_boxes_are_queued_and_a_single_one_is_encoded_at_once(ask, replay):
    tasks = [
        {"id": number, "data": {"img": f"/{number}.jpg"}, "annotations": []} for number in range(3)
    ]
    assert ask("predict", body(tasks=tasks)).json() == {"results": [[], [], []]}
    assert (len(replay.queued), replay.sources) == (3, [])
    ask("predict", body(tasks=[{**tasks[0], "id": 9, "data": {"img": "/9.jpg"}}]))
    assert (len(replay.queued), len(replay.embeds), replay.jobs) == (3, 1, [])


def test_boxes_of_the_newest_annotation_become_objects(ask, replay):
    boxes = [drawn("rectangle", x=10 * number, y=10, width=50, height=80) for number in range(3)]
    annotations = [
        {"result": boxes},
        {"result": boxes[1:], "id": 3},
        {"result": []},
        {"result": None},
    ]
    annotations += [{"result": "no list"}, {"result": ["no object"]}, "no annotation"]
    tasks = [
        {"id": 1, "data": {"img": "/1.jpg"}, "annotations": annotations},
        {"id": 2, "data": {}, "annotations": annotations},
    ]
    replay.masks = [RECORD] * 2
    answer = ask("predict", body(tasks=tasks)).json()
    first, second = answer["results"]
    assert (len(first["result"]), second) == (2, [])
    assert answer["error"].startswith("task 2: data.img")
    assert replay.jobs[0][1].inputs["point_coords"][0].tolist() == [[4, 3], [24, 27]]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"image_rotation": 90}, "an image that is not rotated, got 90 degrees"),
        (
            {"value": {**BOX, "rotation": -10, "rectanglelabels": ["Cat"]}},
            "a rectangle that is not rotated, got 350 degrees",
        ),
        ({"original_height": 31}, "the size of the image, 40 x 30, got 40 x 31"),
        ({"to_name": "second"}, "regions of one image, got those of image, second"),
    ],
)
def test_boxes_of_a_task_are_upright_and_on_one_image_of_their_size(ask, change, text):
    boxes = [drawn("rectangle", **BOX), drawn("rectangle", **BOX) | change]
    tasks = [{"id": 1, "data": {"img": "/1.jpg"}, "annotations": [{"result": boxes}]}]
    answer = ask("predict", body(tasks=tasks, config=TWO_IMAGES)).json()
    assert answer["results"] == [[]]
    assert text in answer["error"]


def test_boxes_of_a_task_are_on_the_image_that_they_name(ask, replay, fetcher):
    box = drawn("rectangle", **BOX) | {"to_name": "second"}
    images = {"img": "/1.jpg", "img2": "/2.jpg"}
    tasks = [{"id": 1, "data": images, "annotations": [{"result": [box]}]}]
    answer = ask("predict", body(tasks=tasks, config=TWO_IMAGES)).json()
    (result,) = answer["results"][0]["result"]
    assert (result["to_name"], result["from_name"]) == ("second", "brush2")
    assert [url for _, url, _ in fetcher.calls] == ["http://localhost:8080/2.jpg"]


def test_tasks_may_come_with_long_brush_strokes_and_polygons(ask, replay):
    strokes = [{"type": "brushlabels", "value": {"rle": [0] * 100_000}}]
    strokes.append(
        {"type": "polygonlabels", "value": {"points": [[1.5, 20]] * 50_000, "closed": True}}
    )
    tasks = [{"id": 1, "data": {"img": "/1.jpg"}, "annotations": [{"result": strokes}]}]
    assert ask("predict", body(tasks=tasks)).json() == {"results": [[]]}


@settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.dictionaries(st.text('"\\\\rle:[]1, '), st.text('"\\\\rle:[]1, ')))
@example({"a": '"rle": [1, 2]', "\\\\": '\\\\"rle": [1]', "points": "[1]"})
def test_texts_are_kept_where_numbers_are_removed(document):
    assert json.loads(without_numbers(json.dumps(document).encode())) == document


@pytest.mark.parametrize("separators", [(",", ":"), (" ,\n", " : ")], ids=["compact", "spaced"])
def test_only_numbers_of_masks_and_polygons_are_removed(separators):
    kept = {"b": [[1]], "rle": [[1], "a"], "points": {}, "my points": [1]}
    document = {"a": {"rle": [1, 2], "points": [[1, -2.5], [3e-5, 4]]}} | kept
    text = json.dumps(document, separators=separators).encode()
    assert json.loads(without_numbers(text)) == {"a": {"rle": [], "points": []}} | kept


def test_numbers_of_several_pieces_are_removed():
    document = {"points": [[1.5, 20]] * (PIECE_BYTES // 5), "x": [1], "rle": [1]}
    assert json.loads(without_numbers(json.dumps(document).encode())) == {
        "points": [],
        "x": [1],
        "rle": [],
    }


@pytest.mark.parametrize(
    "text",
    [b'"rle":[1,x]', b'"rle":[1', b'"rle":[[1]', b'"rle":', b'"rle":[{"a":[1]}]', b'"rle" [1]'],
)
def test_what_is_no_array_of_numbers_is_kept(text):
    assert without_numbers(text) == text


def test_setup_answers_a_version_or_an_error(ask, monkeypatch):
    request = {
        "project": "1.2",
        "schema": CONFIG,
        "hostname": "http://x",
        "access_token": "t",
        "extra_params": None,
    }
    assert ask("setup", request).json() == {"model_version": "mobile-sam"}
    refused = ask("setup", request | {"schema": '<View><Image name="image" value="$i"/></View>'})
    where = "error?label_config:-expected-BrushLabels-name=-brush-toName=-image"
    assert (refused.status_code, refused.headers["Location"][: len(where)]) == (303, where)
    monkeypatch.setattr(label_studio, "task_images", lambda _: TaskImages(Settings()))
    assert (
        "sets-MOBILE_SAM_LABEL_STUDIO_URL-to-its-address"
        in ask("setup", request).headers["Location"]
    )


def fetch_image(text, token="token", **answers):
    """Return the calls for one image of task 7."""
    fetcher = FakeFetcher(**answers)
    settings = Settings(label_studio_url="http://localhost:8080/ls", label_studio_api_key=token)
    images = TaskImages(settings, fetcher)  # type: ignore[arg-type]

    async def work(_):
        return {"image_id": "id"}

    async def run():
        for _ in range(2):
            images._ids.clear()
            await images.answer(7, text, work)

    asyncio.run(run())
    return fetcher.calls


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("/data/upload/1/a.jpg", "Token token"),
        ("data/local-files/?d=a://b.jpg", "Token token"),
        ("http://localhost:8080/ls/data/upload/1/a.jpg", "Token token"),
        ("/api/users/", ""),
        ("/data/../api/users/", ""),
        ("http://localhost:8080/ls/data/%2e%2e/api/users/", ""),
        ("/data/..%2Fapi/users/", ""),
        ("/data/%252e%252e/api/users/", ""),
        ("/data/upload/1/100%25.jpg", "Token token"),
        ("http://localhost:8080/data/upload/1/a.jpg", ""),
        ("http://localhost:8080/lsdata/data/upload/1/a.jpg", ""),
        ("http://localhost:8081/ls/data/upload/1/a.jpg", ""),
        ("https://images.example/data/a.jpg", ""),
    ],
)
def test_token_goes_to_files_of_label_studio_only(text, sent):
    (_, url, authorization), _ = fetch_image(text)
    assert authorization == sent
    assert url.startswith(
        ("http://localhost:8080/", "http://localhost:8081/", "https://images.example/")
    )


@pytest.mark.parametrize(("target", "sent"), [("api/users/", ""), ("data/b", "Token token")])
def test_token_does_not_follow_a_redirect_to_other_paths(target, sent):
    calls = fetch_image("/data/a.jpg", redirect=f"http://localhost:8080/ls/{target}")
    assert {authorization for *_, authorization in calls} == {sent}


def test_file_of_a_storage_comes_through_label_studio():
    url = fetch_image("s3://bucket/a b.jpg")[0][1]
    assert url == "http://localhost:8080/ls/tasks/7/resolve/?fileuri=czM6Ly9idWNrZXQvYSBiLmpwZw=="


def test_personal_access_token_is_exchanged_and_renewed():
    refresh = ("POST", "http://localhost:8080/ls/api/token/refresh/", "")
    url = "http://localhost:8080/ls/data/a.jpg"
    calls = fetch_image("/data/a.jpg", "a.b.c")
    assert calls == [refresh, ("GET", url, "Bearer access-1"), ("GET", url, "Bearer access-1")]
    with pytest.raises(
        ImageNotFetched, match="refused the token in MOBILE_SAM_LABEL_STUDIO_API_KEY"
    ):
        fetch_image("/data/a.jpg", "a.b.c", refused=("Bearer access-1", "Bearer access-3"))
