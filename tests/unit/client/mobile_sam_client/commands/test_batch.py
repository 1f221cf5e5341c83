"""`mobile-sam batch`: results, messages and failures."""

import asyncio
import json

import httpx
import numpy as np
import pytest
from pycocotools.coco import COCO

from mobile_sam_client import AsyncClient
from mobile_sam_client._commands import connection, files
from mobile_sam_client.batches import CannotWrite
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import failing_reply

BATCH = "batch photos --out found"


@pytest.fixture
def folder(tmp_path):
    """Folder with three images, one in a subfolder, and files to skip."""
    photos = tmp_path / "photos"
    for name in ("b.png", "a.jpg", "sub/c.PNG", "notes.txt", ".hidden.png", ".git/d.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(
            picture(sum(name.encode()), kind="JPEG" if name.endswith("jpg") else "PNG")
        )
    return photos


def numbers_of(output: str) -> dict[str, int]:
    """Return the numbers of the summary table."""
    rows = [
        line.rsplit(maxsplit=1)
        for line in output.splitlines()
        if line.rsplit(maxsplit=1)[-1].isdecimal()
    ]
    return {label.strip(): int(number) for label, number in rows}


def test_annotations_and_summary_contain_all_images(run, sam, folder, tmp_path):
    done = run(BATCH)
    assert done.exit_code == 0, done.output
    loaded = COCO(tmp_path / "found" / "annotations.json")
    images = loaded.loadImgs(loaded.getImgIds())
    assert [image["file_name"] for image in images] == ["a.jpg", "b.png", "sub/c.PNG"]
    assert {(image["width"], image["height"]) for image in images} == {(60, 40)}
    assert [category["name"] for category in loaded.loadCats(loaded.getCatIds())] == ["object"]
    first, second = loaded.loadAnns(loaded.getAnnIds(imgIds=[images[1]["id"]]))
    assert (first["bbox"], first["area"], first["score"], first["stability_score"]) == (
        [0, 0, 20, 20],
        400,
        0.9,
        0.8,
    )
    expected = np.zeros((40, 60), np.uint8)
    expected[10:20, 30:40] = 1
    np.testing.assert_array_equal(loaded.annToMask(second), expected)
    assert len({annotation["id"] for annotation in loaded.loadAnns(loaded.getAnnIds())}) == 6

    assert numbers_of(done.stdout) == {
        "images": 3,
        "processed": 3,
        "skipped": 0,
        "failed": 0,
        "objects": 6,
    }
    assert (
        "wrote found: annotations.json, ids.json, failures.json, records, overlays" in done.stdout
    )
    assert "note: A note." in done.stderr
    assert "\x1b" not in done.output


def test_results_inside_the_image_folder_are_not_segmented(run, sam, folder, monkeypatch):
    for _ in range(2):
        done = run("batch photos --out photos/found")
    assert numbers_of(done.stdout)["images"] == 3
    assert len(sam.requests) == 3


def test_prompt_file_selects_images_and_objects(run, sam, folder, tmp_path):
    prompts = {
        "sub/c.PNG": {"box": [1, 2, 11, 12]},
        "b.png": [{"pos_coords": [[5, 5]]}, {"box": [0, 0, 30, 30]}],
    }
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    done = run(f"{BATCH} --prompts prompts.json")
    assert done.exit_code == 0, done.output
    assert {fields["prompts"][-1]["box"][2] for _, fields in sam.requests} == {11, 30}
    assert [path for path, _ in sam.requests] == ["/mobile_sam"] * 2
    loaded = COCO(tmp_path / "found" / "annotations.json")
    annotations = loaded.loadAnns(loaded.getAnnIds())
    assert [(found["image_id"], found["prompt"], found["bbox"]) for found in annotations] == [
        (1, 0, [0, 0, 20, 20]),
        (1, 1, [0, 0, 30, 30]),
        (2, 0, [1, 2, 10, 10]),
    ]


def test_many_prompts_are_split_into_several_requests(run, sam, folder, tmp_path):
    boxes = [[0, 0, size, size] for size in range(1, 8)]
    (tmp_path / "prompts.json").write_text(json.dumps({"a.jpg": [{"box": box} for box in boxes]}))
    assert run(f"{BATCH} --prompts prompts.json").exit_code == 0
    assert [len(fields["prompts"]) for _, fields in sam.requests] == [3, 3, 1]
    annotations = json.loads((tmp_path / "found" / "annotations.json").read_text())["annotations"]
    assert [found["area"] for found in annotations] == [size**2 for size in range(1, 8)]


def test_failures_are_listed_and_do_not_stop_the_run(run, sam, folder, tmp_path):
    (folder / "bad.png").write_bytes(b"bad")
    (folder / "empty.webp").touch()
    (folder / "lost.png").symlink_to("nowhere")
    sam.replies[b"bad"] = failing_reply(httpx.ReadError, "reset")
    done = run(f"{BATCH} --json")
    assert done.exit_code == 1
    failures = json.loads((tmp_path / "found" / "failures.json").read_text())
    assert {failure["file"]: failure["reason"] for failure in failures} == {
        "bad.png": "the connection to http://127.0.0.1:3000/everything was lost (reset)",
        "empty.webp": "expected a PNG, JPEG or WebP file, got an empty one",
        "lost.png": "No such file or directory",
    }
    assert "failed: lost.png: No such file or directory\n" in done.stderr
    document = json.loads(done.stdout)
    assert document.pop("weights")["name"] == "none"
    assert document == {
        "out": "found",
        "images": 6,
        "processed": 3,
        "skipped": 0,
        "failed": 3,
        "objects": 6,
    }
    images = json.loads((tmp_path / "found" / "annotations.json").read_text())["images"]
    assert [image["file_name"] for image in images] == ["a.jpg", "b.png", "sub/c.PNG"]


def test_concurrency_is_used_and_not_exceeded(run, sam, folder, monkeypatch):
    running: list[int] = [0]
    full = asyncio.Event()

    async def handle(request):
        if request.url.path == "/everything":
            running.append(running[-1] + 1)
            if running[-1] == 2:
                full.set()
            await full.wait()  # would hang with fewer concurrent requests
            running.append(running[-1] - 1)
        return sam(request)

    monkeypatch.setattr(
        connection,
        "make_client",
        lambda _, url: AsyncClient(url, transport=httpx.MockTransport(handle)),
    )
    assert run(f"{BATCH} --concurrency 2").exit_code == 0
    assert max(running) == 2


def test_full_disk_stops_the_run(run, sam, folder, monkeypatch):
    def full(path, *_):
        raise CannotWrite(path, OSError(28, "No space left on device"))

    monkeypatch.setattr(files, "write_bytes", full)
    done = run(f"{BATCH} --concurrency 1")
    assert done.exit_code == 1
    assert done.stderr == "error: cannot write found/overlays/a.jpg.jpg: No space left on device\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "prompts.json: not valid JSON: "),
        ("[]", 'prompts.json: expected {"photo.jpg": '),
        ('{"a.jpg": []}', "prompts.json: 'a.jpg': expected a list of objects, got []"),
        ('{"images": [], "annotations": []}', "this looks like a COCO file"),
        (
            '{"a.jpg": [{"points": [[1, 2]]}]}',
            "'a.jpg': object 0: expected some of pos_coords, labels, neg_coords, bo",
        ),
        (
            '{"a.jpg": [{"box": [NaN, 0, 1, 1]}]}',
            "prompts.json: not valid JSON: NaN is not a JSON number",
        ),
        (
            '{"../a.jpg": {"box": [0, 0, 1, 1]}}',
            "'../a.jpg': expected a path relative to the image folder",
        ),
    ],
)
def test_malformed_prompt_file_is_reported_in_one_line(run, folder, tmp_path, content, message):
    (tmp_path / "prompts.json").write_text(content)
    done = run(f"{BATCH} --prompts prompts.json")
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("empty --out found", 1, "error: empty: no PNG, JPEG or WebP files found\n"),
        (
            "photos --out found --prompts absent.json",
            1,
            "error: absent.json: No such file or directory\n",
        ),
        (
            "photos --out found --prompts p --points-per-side 8",
            2,
            "cannot be combined with the options for everything",
        ),
        (
            "absent --out found --prompts prompts.json",
            1,
            "error: absent: No such file or directory\n",
        ),
        ("photos --out photos/", 2, "must not be the folder of the images"),
        (
            "photos --out photos/a.jpg",
            1,
            "cannot write photos/a.jpg/annotations.json: Not a directory\n",
        ),
    ],
)
def test_wrong_usage_is_reported_before_any_request(run, sam, folder, arguments, code, message):  # noqa: PLR0917
    (folder.parent / "empty").mkdir()
    (folder.parent / "prompts.json").write_text('{"a.jpg": {"box": [0, 0, 1, 1]}}')
    done = run(f"batch {arguments}")
    assert done.exit_code == code
    assert message in done.stderr
    assert not sam.requests
    assert not (folder.parent / "found").exists()


def test_clip_is_sent_and_kept_in_the_annotations(run, sam, folder, tmp_path):
    (tmp_path / "prompts.json").write_text(
        json.dumps(
            {
                "b.png": [{"box": [10, 5, 30, 25]}, {"box": [-3, 5, 30, 45]}],
                "a.jpg": {"box": [1, 1, 9, 9]},
            }
        )
    )
    done = run(f"{BATCH} --prompts prompts.json --clip")
    assert done.exit_code == 0, done.output
    assert [fields["clip"] for _, fields in sam.requests] == [True, True]
    annotations = json.loads((tmp_path / "found" / "annotations.json").read_text())["annotations"]
    assert [annotation.get("clipped") for annotation in annotations] == [None, None, ["box"]]
    # Without the option the same objects are another request.
    again = run(f"{BATCH} --prompts prompts.json")
    assert numbers_of(again.stdout)["skipped"] == 0
    assert "clip" not in sam.requests[-1][1]


def test_clip_needs_prompts(run, sam, folder):
    done = run(f"{BATCH} --clip")
    assert done.exit_code == 2
    assert "--clip" in done.stderr
    assert not sam.requests
