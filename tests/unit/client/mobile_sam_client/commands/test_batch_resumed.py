"""`mobile-sam batch` resumed: finished images are skipped, changed ones redone."""

import json
from pathlib import Path

import httpx
import pytest

from mobile_sam_client._commands import files as files_module
from mobile_sam_client._commands.batch import CocoIds
from mobile_sam_client.batches import LabelledImage
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import problem_reply

RECORD = "found/records/b.png.json"
BATCH = "batch photos --out found --concurrency 1"


@pytest.fixture
def files(tmp_path) -> dict[str, bytes]:
    """Four images in `photos`, by name."""
    files = {f"{name}.png": picture(number) for number, name in enumerate("abcd")}
    (tmp_path / "photos").mkdir()
    for name, file in files.items():
        (tmp_path / "photos" / name).write_bytes(file)
    return files


@pytest.fixture
def requested(sam, files):
    """Return the names of the images requested since the last call."""

    def requested() -> list[str]:
        names = {file: name for name, file in files.items()}
        requested_names = [names.get(sam.file_of(fields), "another") for _, fields in sam.requests]
        sam.requests.clear()
        return requested_names

    return requested


def without_orientation(path: Path) -> None:
    """Change a record to one of a release that did not store how it had turned the image."""
    record = json.loads(path.read_bytes())
    del record["question"]["orientation"]
    path.write_text(json.dumps(record))


def test_finished_images_are_skipped(run, files, requested, tmp_path):
    run(BATCH)
    assert requested() == list(files)
    before = (tmp_path / "found" / "annotations.json").read_bytes()
    done = run(BATCH)
    assert done.exit_code == 0
    assert requested() == []
    assert (tmp_path / "found" / "annotations.json").read_bytes() == before
    assert "skipped 4" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        (lambda sam, folder: (folder / "photos/b.png").write_bytes(picture(10)), "", ["another"]),
        (lambda sam, folder: (folder / "photos/e.png").write_bytes(picture(0)), "", ["a.png"]),
        (lambda sam, folder: None, "--points-per-side 8", ["a.png", "b.png", "c.png", "d.png"]),
        (lambda sam, folder: None, "--max-side 2000", ["a.png", "b.png", "c.png", "d.png"]),
        (
            lambda sam, folder: sam.weights.update(sha256="1" * 64),
            "",
            ["a.png", "b.png", "c.png", "d.png"],
        ),
        (lambda sam, folder: without_orientation(folder / RECORD), "", ["b.png"]),
        (lambda sam, folder: (folder / RECORD).write_bytes(b"{"), "", ["b.png"]),
        (lambda sam, folder: (folder / RECORD).write_bytes(b"[]"), "", ["b.png"]),
    ],
    ids=[
        "changed image",
        "new image",
        "changed parameters",
        "smaller images",
        "changed weights",
        "record of an older release",
        "truncated record",
        "list as record",
    ],
)
def test_only_outdated_results_are_redone(
    *, run, sam, files, requested, tmp_path, change, options, expected
):
    run(BATCH)
    requested()
    change(sam, tmp_path)
    assert run(f"{BATCH} {options}").exit_code == 0
    assert requested() == expected
    assert list(ids(tmp_path)) == sorted(path.name for path in (tmp_path / "photos").iterdir())


def test_overlays_follow_the_option(run, files, requested, tmp_path):
    overlays = tmp_path / "found" / "overlays"
    assert "overlays" not in run(f"{BATCH} --no-overlays").stdout
    assert not overlays.exists()
    requested()
    run(BATCH)
    assert requested() == []
    assert len(list(overlays.iterdir())) == 4
    (tmp_path / "photos" / "b.png").write_bytes(picture(10))
    run(f"{BATCH} --no-overlays")
    assert sorted(path.name for path in overlays.iterdir()) == [
        "a.png.jpg",
        "c.png.jpg",
        "d.png.jpg",
    ]


def ids(tmp_path) -> dict[str, tuple[int, list[int]]]:
    """Return the ids of each image and of its objects."""
    document = json.loads((tmp_path / "found" / "annotations.json").read_text())
    return {
        image["file_name"]: (
            image["id"],
            [found["id"] for found in document["annotations"] if found["image_id"] == image["id"]],
        )
        for image in document["images"]
    }


def test_ids_are_stable_when_images_are_added_and_deleted(run, sam, files, tmp_path):
    run(BATCH)
    before = ids(tmp_path)
    assert before == {
        "a.png": (1, [1, 2]),
        "b.png": (2, [3, 4]),
        "c.png": (3, [5, 6]),
        "d.png": (4, [7, 8]),
    }
    (tmp_path / "photos" / "0.png").write_bytes(picture(10))
    (tmp_path / "photos" / "b.png").unlink()
    run(BATCH)
    after = ids(tmp_path)
    assert after == {
        "0.png": (5, [9, 10]),
        **{name: before[name] for name in ("a.png", "c.png", "d.png")},
    }
    (tmp_path / "photos" / "b.png").write_bytes(files["b.png"])
    run(BATCH)
    assert ids(tmp_path) == {**after, "b.png": before["b.png"]}


def test_changed_objects_of_an_image_get_new_ids(tmp_path):
    ids = CocoIds(tmp_path / "ids.json")
    for name, areas in (("a", [1]), ("b", [2, 3]), ("a", [4])):
        image, annotations = ids.entry(
            LabelledImage(name, 6, 4, [{"area": area} for area in areas])
        )
    assert (image["id"], [annotation["id"] for annotation in annotations]) == (1, [4])


def test_ctrl_c_keeps_results_and_explains_how_to_resume(
    *, run, sam, files, requested, ctrl_c, tmp_path
):
    sam.replies[files["c.png"]] = ctrl_c
    done = run(BATCH)
    assert done.exit_code == 130
    assert done.stderr.endswith(
        "error: interrupted; 2 of 4 images are done, run the same command to resume\n"
    )
    assert list(ids(tmp_path)) == ["a.png", "b.png"]
    requested()
    sam.replies.clear()
    assert run(BATCH).exit_code == 0
    assert requested() == ["c.png", "d.png"]


def test_rejected_key_stops_the_run(run, sam, files):
    for file in files.values():
        sam.replies[file] = problem_reply(401, "unauthorized", "expected a key")
    done = run(BATCH)
    assert (done.exit_code, len(sam.requests)) == (1, 1)
    message = (
        "401 unauthorized: expected a key (request the-request); set the API key in"
        " MOBILE_SAM_API_KEY"
    )
    assert done.stderr == f"error: {message}\n"


def test_changed_weights_during_the_run_stop_it(run, sam, files, requested):
    def change(request: httpx.Request):
        sam.weights["sha256"] = "1" * 64
        del sam.replies[files["b.png"]]
        return sam(request)

    sam.replies[files["b.png"]] = change
    done = run(BATCH)
    assert done.exit_code == 1
    assert "or one of its replicas has others; 1 of 4 images are done" in done.stderr
    requested()
    assert run(BATCH).exit_code == 0
    assert requested() == list(files)


def test_image_killed_before_its_overlay_is_complete_is_redone(run, files, requested, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files_module, "write_overlay", killed)
        assert run(BATCH).exit_code == 130
    assert requested() == ["a.png"]
    assert run(BATCH).exit_code == 0
    assert requested() == list(files)
