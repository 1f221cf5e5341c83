"""`mobile-sam batch`: what it writes and says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from mobile_sam_client._commands import work
from mobile_sam_client._commands.failures import CannotWrite
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import fails, refuses

import httpx  # isort: skip


@pytest.fixture
def folder(tmp_path):
    """Three images, one below, and what is to be left out."""
    photos = tmp_path / "photos"
    for name in ("b.png", "a.jpg", "below/c.PNG", "notes.txt", ".hidden.png", ".git/d.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(picture(sum(name.encode()), kind="JPEG" if name.endswith("jpg") else "PNG"))
    return photos


def failures(tmp_path) -> dict[str, str]:
    return {one["file"]: one["reason"] for one in json.loads((tmp_path / "found" / "failures.json").read_text())}


def names_in(path) -> list[str]:
    return [image["file_name"] for image in json.loads(path.read_text())["images"]]


def numbers_of(output: str) -> dict[str, int]:
    """The table at the end."""
    rows = [line.rsplit(maxsplit=1) for line in output.splitlines() if line.rsplit(maxsplit=1)[-1].isdecimal()]
    return {words.strip(): int(number) for words, number in rows}


def test_a_coco_file_of_all_images_is_written(run, sam, folder, tmp_path):
    done = run("batch", "photos", "--out", "found")
    assert done.exit_code == 0, done.output
    loaded = COCO(tmp_path / "found" / "annotations.json")
    images = loaded.loadImgs(loaded.getImgIds())
    assert [image["file_name"] for image in images] == ["a.jpg", "b.png", "below/c.PNG"]
    assert {(image["width"], image["height"]) for image in images} == {(60, 40)}
    assert [category["name"] for category in loaded.loadCats(loaded.getCatIds())] == ["object"]
    first, second = loaded.loadAnns(loaded.getAnnIds(imgIds=[images[1]["id"]]))
    assert (first["bbox"], first["area"], first["score"], first["stability_score"]) == ([0, 0, 20, 20], 400, 0.9, 0.8)
    expected = np.zeros((40, 60), np.uint8)
    expected[10:20, 30:40] = 1
    np.testing.assert_array_equal(loaded.annToMask(second), expected)
    assert len({one["id"] for one in loaded.loadAnns(loaded.getAnnIds())}) == 6


def test_a_table_ends_the_run(run, sam, folder):
    done = run("batch", "photos", "--out", "found")
    assert numbers_of(done.stdout) == {"images": 3, "done now": 3, "done before": 0, "failed": 0, "objects": 6}
    assert "wrote found: annotations.json, ids.json, failures.json, records, overlays" in done.stdout
    assert "note: A note." in done.stderr
    assert "\x1b" not in done.output


def test_each_image_has_an_overlay_of_its_size(run, sam, folder, tmp_path):
    turned = picture(9, (60, 40), "JPEG", exif=_sideways())
    (folder / "turned.jpg").write_bytes(turned)
    assert run("batch", "photos", "--out", "found").exit_code == 0
    sizes = {}
    for path in (tmp_path / "found" / "overlays").rglob("*.*"):
        with Image.open(path) as drawn:
            sizes[str(path.relative_to(tmp_path / "found" / "overlays"))] = drawn.size
    assert sizes == {
        "a.jpg.jpg": (60, 40),
        "b.png.jpg": (60, 40),
        "below/c.PNG.jpg": (60, 40),
        "turned.jpg.jpg": (40, 60),
    }


def test_no_overlays(run, sam, folder, tmp_path):
    done = run("batch", "photos", "--out", "found", "--no-overlays")
    assert "overlays" not in done.stdout
    assert not (tmp_path / "found" / "overlays").exists()


def test_results_in_the_folder_of_images_are_not_taken_for_images(run, sam, folder, monkeypatch):
    for _ in range(2):
        done = run("batch", "photos", "--out", "photos/found")
    assert numbers_of(done.stdout)["images"] == 3
    assert len(sam.asked) == 3


def test_prompts_say_what_to_find_on_which_image(run, sam, folder, tmp_path):
    prompts = {"below/c.PNG": {"box": [1, 2, 11, 12]}, "b.png": [{"pos_coords": [[5, 5]]}, {"box": [0, 0, 30, 30]}]}
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    done = run("batch", "photos", "--out", "found", "--prompts", "prompts.json")
    assert done.exit_code == 0, done.output
    assert {fields["prompts"][-1]["box"][2] for _, fields in sam.asked} == {11, 30}
    assert sam.paths == ["/mobile_sam"] * 2
    loaded = COCO(tmp_path / "found" / "annotations.json")
    found = loaded.loadAnns(loaded.getAnnIds())
    assert [(one["image_id"], one["prompt"], one["bbox"]) for one in found] == [
        (1, 0, [0, 0, 20, 20]),
        (1, 1, [0, 0, 30, 30]),
        (2, 0, [1, 2, 10, 10]),
    ]


def test_more_prompts_than_a_request_may_have_go_with_several(run, sam, folder, tmp_path):
    boxes = [[0, 0, size, size] for size in range(1, 8)]
    (tmp_path / "prompts.json").write_text(json.dumps({"a.jpg": [{"box": box} for box in boxes]}))
    assert run("batch", "photos", "--out", "found", "--prompts", "prompts.json").exit_code == 0
    assert [len(fields["prompts"]) for _, fields in sam.asked] == [3, 3, 1]
    found = json.loads((tmp_path / "found" / "annotations.json").read_text())["annotations"]
    assert [one["area"] for one in found] == [size**2 for size in range(1, 8)]


def test_what_fails_is_told_and_listed_and_stops_nothing(run, sam, folder, tmp_path):
    (folder / "bad.png").write_bytes(b"bad")
    (folder / "empty.webp").touch()
    (folder / "lost.png").symlink_to("nowhere")
    sam.instead[b"bad"] = refuses(422, "invalid-image", "it is damaged")
    done = run("batch", "photos", "--out", "found")
    assert done.exit_code == 1
    assert failures(tmp_path) == {
        "bad.png": "422 invalid-image: it is damaged (request the-request)",
        "empty.webp": "expected a PNG, JPEG or WebP file, got an empty one",
        "lost.png": "No such file or directory",
    }
    assert "failed: bad.png: 422 invalid-image: it is damaged (request the-request)\n" in done.stderr
    assert numbers_of(done.stdout) == {"images": 6, "done now": 3, "done before": 0, "failed": 3, "objects": 6}
    assert names_in(tmp_path / "found" / "annotations.json") == ["a.jpg", "b.png", "below/c.PNG"]


def test_many_failures_are_counted_and_the_file_has_them_all(run, sam, folder, tmp_path):
    for number in range(25):
        (folder / f"empty{number:02}.png").touch()
    done = run("batch", "photos", "--out", "found")
    assert done.stderr.count("failed: ") == 21
    assert "failed: 5 more, see found/failures.json" in done.stderr
    assert len(failures(tmp_path)) == 25


def test_an_image_on_which_the_connection_breaks_is_one_failure_while_the_service_lives(run, sam, folder, tmp_path):
    sam.instead[(folder / "b.png").read_bytes()] = fails(httpx.ReadError, "reset")
    done = run("batch", "photos", "--out", "found")
    assert done.exit_code == 1
    assert list(failures(tmp_path)) == ["b.png"]


def test_a_disk_that_is_full_ends_the_run(run, sam, folder, monkeypatch):
    def full(path, *_):
        raise CannotWrite(path, OSError(28, "No space left on device"))

    monkeypatch.setattr(work, "write_overlay", full)
    done = run("batch", "photos", "--out", "found", "--concurrency", "1")
    assert done.exit_code == 1
    assert done.stderr == "error: cannot write found/overlays/a.jpg.jpg: No space left on device\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "prompts.json: expected JSON, got what is none: "),
        ("[]", 'prompts.json: expected {"photo.jpg": '),
        ('{"a.jpg": []}', "prompts.json: 'a.jpg': expected a list of objects to find, got an empty one"),
        ('{"a.jpg": 3}', "prompts.json: 'a.jpg': expected a list of objects to find, got a number"),
        ('{"a.jpg": [{"points": [[1, 2]]}]}', "'a.jpg': object 0: expected some of pos_coords, labels, neg_coords, bo"),
        ('{"a.jpg": [{}]}', "prompts.json: 'a.jpg': object 0: expected some of "),
        ('{"a.jpg": [{"box": [NaN, 0, 1, 1]}]}', "prompts.json: expected JSON, got what is none: NaN is no number"),
        ('{"./a.jpg": {"box": [0, 0, 1, 1]}}', "'./a.jpg': expected a path from the folder of images"),
        ('{"": {"box": [0, 0, 1, 1]}}', "'': expected a path from the folder of images"),
        ('{"../a.jpg": {"box": [0, 0, 1, 1]}}', "'../a.jpg': expected a path from the folder of images"),
    ],
    ids=["half", "list", "no objects", "number", "unknown field", "no field", "NaN", "dot", "empty", "outside"],
)
def test_a_wrong_file_of_prompts_is_one_line(run, folder, tmp_path, content, message):
    (tmp_path / "prompts.json").write_text(content)
    done = run("batch", "photos", "--out", "found", "--prompts", "prompts.json")
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("absent", "--out", "found"), 1, "error: absent: No such file or directory\n"),
        (("empty", "--out", "found"), 1, "error: empty: expected PNG, JPEG or WebP files in it, found none\n"),
        (("photos",), 2, "Missing option '--out'"),
        (
            ("photos", "--out", "found", "--prompts", "absent.json"),
            1,
            "error: absent.json: No such file or directory\n",
        ),
        (
            ("photos", "--out", "found", "--prompts", "p", "--points-per-side", "8"),
            2,
            "expected --prompts or --points-",
        ),
        (("photos", "--out", "found", "--concurrency", "0"), 2, "Invalid value for '--concurrency'"),
        (("photos", "--out", "photos/"), 2, "expected another folder than that of the images"),
        (("photos", "--out", "photos/a.jpg"), 1, "cannot write photos/a.jpg/annotations.json: Not a directory\n"),
    ],
    ids=["no folder", "empty folder", "no out", "no prompts", "both", "none at once", "among the images", "a file"],
)
def test_wrong_use_is_told_before_anything_is_asked(run, sam, folder, arguments, code, message):  # noqa: PLR0917
    (folder.parent / "empty").mkdir()
    done = run("batch", *arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert not sam.asked
    assert not (folder.parent / "found").exists()


def test_prompts_for_a_folder_that_is_not_there_are_one_error(run, sam, tmp_path):
    (tmp_path / "prompts.json").write_text('{"a.jpg": {"box": [0, 0, 1, 1]}}')
    done = run("batch", "absent", "--out", "found", "--prompts", "prompts.json")
    assert (done.exit_code, done.stderr) == (1, "error: absent: No such file or directory\n")


def _sideways() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif
