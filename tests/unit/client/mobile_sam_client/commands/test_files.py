"""Patterns of images, names of output files, and atomic writes."""

import os
import threading
from pathlib import Path

import pytest

from mobile_sam_client._commands.files import atomic_writer, find_images, output_file, write_bytes


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
