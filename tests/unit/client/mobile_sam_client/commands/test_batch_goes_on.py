"""`mobile-sam batch`, started again: what is done stays, what changed is done anew."""

from __future__ import annotations

import json
import os
import signal

import httpx
import pytest

from mobile_sam_client._commands.records import Records
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import fails, refuses

BATCH = ("batch", "photos", "--out", "found", "--concurrency", "1")


@pytest.fixture
def files(tmp_path) -> dict[str, bytes]:
    """Four images in `photos`, by name."""
    files = {f"{name}.png": picture(number) for number, name in enumerate("abcd")}
    (tmp_path / "photos").mkdir()
    for name, file in files.items():
        (tmp_path / "photos" / name).write_bytes(file)
    return files


@pytest.fixture
def asked(sam, files):
    """The names of the images that the service was asked about since the last call of this."""

    def asked() -> list[str]:
        by_file = {file: name for name, file in files.items()}
        found = [by_file.get(sam.file_of(fields), "another") for _, fields in sam.asked]
        sam.asked.clear()
        return found

    return asked


def annotated(tmp_path) -> list[str]:
    document = json.loads((tmp_path / "found" / "annotations.json").read_text())
    return [image["file_name"] for image in document["images"]]


def test_what_is_done_is_not_done_again(run, files, asked, tmp_path):
    run(*BATCH)
    assert asked() == list(files)
    before = (tmp_path / "found" / "annotations.json").read_bytes()
    done = run(*BATCH)
    assert done.exit_code == 0
    assert asked() == []
    assert (tmp_path / "found" / "annotations.json").read_bytes() == before
    assert "done before 4" in " ".join(done.stdout.split())


def test_images_that_came_or_changed_are_done(run, files, asked, tmp_path):
    run(*BATCH)
    asked()
    (tmp_path / "photos" / "b.png").write_bytes(picture(10))
    (tmp_path / "photos" / "e.png").write_bytes(files["a.png"])
    run(*BATCH)
    assert asked() == ["another", "a.png"]
    assert annotated(tmp_path) == ["a.png", "b.png", "c.png", "d.png", "e.png"]


def test_images_that_went_are_no_longer_in_the_results(run, files, asked, tmp_path):
    run(*BATCH)
    (tmp_path / "photos" / "a.png").unlink()
    run(*BATCH)
    assert annotated(tmp_path) == ["b.png", "c.png", "d.png"]


def ids(tmp_path) -> dict[str, tuple[int, list[int]]]:
    """The ids of each image and of its objects."""
    document = json.loads((tmp_path / "found" / "annotations.json").read_text())
    return {
        image["file_name"]: (
            image["id"],
            [one["id"] for one in document["annotations"] if one["image_id"] == image["id"]],
        )
        for image in document["images"]
    }


def test_ids_stay_when_images_come_and_go(run, sam, files, tmp_path):
    run(*BATCH)
    before = ids(tmp_path)
    assert before == {"a.png": (1, [1, 2]), "b.png": (2, [3, 4]), "c.png": (3, [5, 6]), "d.png": (4, [7, 8])}
    (tmp_path / "photos" / "0.png").write_bytes(picture(10))
    (tmp_path / "photos" / "b.png").unlink()
    run(*BATCH)
    after = ids(tmp_path)
    assert after == {"0.png": (5, [9, 10]), **{name: before[name] for name in ("a.png", "c.png", "d.png")}}
    (tmp_path / "photos" / "b.png").write_bytes(files["b.png"])
    run(*BATCH)
    assert ids(tmp_path) == {**after, "b.png": before["b.png"]}


def test_objects_that_are_others_have_other_ids(run, sam, files, tmp_path):
    prompts = {name: [{"box": [0, 0, 5, 5]}] for name in ("a.png", "b.png")}
    for size in (5, 6):
        prompts["a.png"][0]["box"][2] = size
        (tmp_path / "prompts.json").write_text(json.dumps(prompts))
        run(*BATCH, "--prompts", "prompts.json")
    assert ids(tmp_path) == {"a.png": (1, [3]), "b.png": (2, [2])}


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"a.png": 1}', b'{"a.png": {"image": 1}}'], ids=repr)
def test_damaged_ids_are_told_before_anything_is_asked(run, files, asked, tmp_path, damage):
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "ids.json").write_bytes(damage)
    done = run(*BATCH)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: found/ids.json: expected the ids of images and objects as an earlier run")
    assert asked() == []


def test_other_parameters_are_asked_anew(run, files, asked):
    run(*BATCH)
    asked()
    run(*BATCH, "--points-per-side", "8")
    assert asked() == list(files)


def test_of_prompts_those_that_changed_are_asked_anew(run, sam, files, asked, tmp_path):
    prompts = {name: [{"box": [0, 0, 5, 5]}] for name in files}
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    run(*BATCH, "--prompts", "prompts.json")
    asked()
    prompts["c.png"][0]["box"][2] = 6
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    run(*BATCH, "--prompts", "prompts.json")
    assert asked() == ["c.png"]


def test_other_weights_are_asked_anew(run, sam, files, asked):
    run(*BATCH)
    asked()
    sam.weights["sha256"] = "1" * 64
    run(*BATCH)
    assert asked() == list(files)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"question": null}'], ids=repr)
def test_a_damaged_record_counts_as_none(run, files, asked, tmp_path, damage):
    run(*BATCH)
    asked()
    (tmp_path / "found" / "records" / "b.png.json").write_bytes(damage)
    assert run(*BATCH).exit_code == 0
    assert asked() == ["b.png"]


def test_an_overlay_that_is_missing_is_drawn_without_asking(run, files, asked, tmp_path):
    run(*BATCH, "--no-overlays")
    asked()
    run(*BATCH)
    assert asked() == []
    assert len(list((tmp_path / "found" / "overlays").iterdir())) == 4


def test_an_overlay_of_another_occasion_does_not_stay(run, files, asked, tmp_path):
    run(*BATCH)
    (tmp_path / "photos" / "b.png").write_bytes(picture(10))
    run(*BATCH, "--no-overlays")
    assert not (tmp_path / "found" / "overlays" / "b.png.jpg").exists()


def test_a_failure_is_tried_again_and_forgotten_when_it_is_none(run, sam, files, asked, tmp_path):
    sam.instead[files["b.png"]] = refuses(504, "inference-timeout", "too slow")
    assert run(*BATCH).exit_code == 1
    asked()
    sam.instead.clear()
    assert run(*BATCH).exit_code == 0
    assert asked() == ["b.png"]
    assert json.loads((tmp_path / "found" / "failures.json").read_text()) == []


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(*, request, run, sam, files, asked, tmp_path):
    pressed: list[bool] = []
    # What a shell starts in the background ignores Ctrl-C, and so would these tests there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupt(asking: httpx.Request) -> httpx.Response:
        if not pressed:  # once: a second time ends the command wherever it is
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return refuses(503)(asking)

    sam.instead[files["c.png"]] = interrupt
    done = run(*BATCH)
    assert done.exit_code == 130
    assert done.stderr.endswith("error: interrupted; 2 of 4 images are done, and the same command goes on from there\n")
    assert annotated(tmp_path) == ["a.png", "b.png"]
    asked()
    sam.instead.clear()
    assert run(*BATCH).exit_code == 0
    assert asked() == ["c.png", "d.png"]


def test_a_service_that_is_gone_ends_the_run_and_the_next_goes_on(run, sam, files, asked, tmp_path):
    def die(request: httpx.Request) -> httpx.Response:
        sam.gone = True
        return fails(httpx.ReadError, "reset")(request)

    sam.instead[files["c.png"]] = die
    done = run(*BATCH)
    assert done.exit_code == 1
    assert done.stderr.endswith("make serve`; 2 of 4 images are done, and the same command goes on from there\n")
    sam.gone = False
    sam.instead.clear()
    asked()
    assert run(*BATCH).exit_code == 0
    assert asked() == ["c.png", "d.png"]


def test_a_key_that_is_refused_ends_the_run(run, sam, files):
    for file in files.values():
        sam.instead[file] = refuses(401, "unauthorized", "expected a key")
    done = run(*BATCH)
    assert (done.exit_code, len(sam.asked)) == (1, 1)
    assert done.stderr == "error: 401 unauthorized: expected a key (request the-request)\n"


def test_weights_that_change_on_the_way_end_the_run(run, sam, files, asked):
    def change(request: httpx.Request):
        sam.weights["sha256"] = "1" * 64
        del sam.instead[files["b.png"]]
        return sam(request)

    sam.instead[files["b.png"]] = change
    done = run(*BATCH)
    assert done.exit_code == 1
    assert "error: the service was started anew with other weights; 1 of 4 images are done" in done.stderr
    asked()
    assert run(*BATCH).exit_code == 0
    assert asked() == list(files)


def test_a_run_that_is_killed_between_overlay_and_record_does_the_image_again(run, files, asked, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Records, "write", killed)
        assert run(*BATCH).exit_code == 130
    assert asked() == ["a.png"]
    assert run(*BATCH).exit_code == 0
    assert asked() == list(files)
