"""Patterns of images, names of output files, and atomic writes."""

import os
import threading
from pathlib import Path

import pytest

from mobile_sam_client._commands.files import atomic_writer, check_writable, find_images, output_file, write_bytes
from mobile_sam_client._commands.output import CannotWrite


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["*.png"], ["[1].png", "a.png", "b.png"]),
        (["b.png", "*.png"], ["b.png", "[1].png", "a.png"]),
        (["[1].png"], ["[1].png"]),
        (["**/*.jpg"], ["sub/c.jpg", "sub/sub/d.jpg"]),
        (["s*"], ["s*"]),
        (["absent.png", "a.png"], ["absent.png", "a.png"]),
    ],
    ids=["sorted", "each once", "existing name", "recursive", "folders are no match", "absent"],
)
def test_patterns_are_expanded(tmp_path, monkeypatch, patterns, found):
    (tmp_path / "sub" / "sub").mkdir(parents=True)
    for name in ("b.png", "a.png", "[1].png", "sub/c.jpg", "sub/sub/d.jpg"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert find_images(map(Path, patterns)) == list(map(Path, found))


@pytest.mark.parametrize(
    ("template", "image", "numbers", "path"),
    [
        ("{stem}_mask.png", "photos/a.b.jpg", (), "a.b_mask.png"),
        ("{parent}/{stem}.npy", "photos/a.jpg", (2, 3), "photos/a_2_3.npy"),
        ("{parent}/{stem}.npy", "a.jpg", (), "a.npy"),
        ("mask.png", "photos/a.jpg", (1,), "mask_1.png"),
        ("{stem}.png", "{parent}.jpg", (), "{parent}.png"),
    ],
)
def test_output_file_is_named_after_its_image(template, image, numbers, path):
    assert output_file(Path(template), Path(image), *numbers) == Path(path)


def test_file_is_replaced_only_when_complete(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with atomic_writer(path) as file:
        file.write(b"after")
        file.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failed_write_leaves_no_file(tmp_path, error):
    path = tmp_path / "file"
    with pytest.raises(error), atomic_writer(path) as file:  # noqa: PT012 (the block must write before it raises)
        file.write(b"half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_symlink_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write_bytes(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"content"


def test_pipe_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"content")
    reader.join()
    assert read == [b"content"]
    assert pipe.is_fifo()


def test_folder_is_not_replaced(tmp_path):
    with pytest.raises(CannotWrite, match=r"cannot write .*: Is a directory"):
        write_bytes(tmp_path, b"content")


def test_full_disk_is_reported_with_the_file_name(tmp_path):
    with pytest.raises(CannotWrite, match="cannot write /dev/full: No space left on device") as raised:
        write_bytes(type(tmp_path)("/dev/full"), b"content")
    assert raised.value.errno == 28


@pytest.mark.parametrize("name", ["file", "new", "sub/folder/new"])
def test_writable_path_is_accepted_and_not_created(tmp_path, name):
    (tmp_path / "file").touch()
    check_writable(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "reason"), [("", "Is a directory"), ("file/sub", "Not a directory"), ("file/sub/it", "Not a directory")]
)
def test_unwritable_path_is_rejected(tmp_path, name, reason):
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match=f"cannot write .*: {reason}"):
        check_writable(tmp_path / name)


def test_folder_without_permission_is_rejected(tmp_path, monkeypatch):
    # Patched, because root, who may run the tests, can write to every folder.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(CannotWrite, match=r"cannot write .*: Permission denied"):
        check_writable(tmp_path / "sub" / "new")
