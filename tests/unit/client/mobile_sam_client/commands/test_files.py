"""Files written whole or not at all."""

from __future__ import annotations

import os
import threading

import pytest

from mobile_sam_client._commands.failures import CannotWrite
from mobile_sam_client._commands.files import check_place, replacing, write_bytes


def test_what_stood_there_stays_until_all_is_written(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with replacing(path) as file:
        file.write(b"after")
        file.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_what_broke_off(tmp_path, error):
    path = tmp_path / "file"
    with pytest.raises(error), replacing(path) as file:  # noqa: PT012 (it is what the block does)
        file.write(b"half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write_bytes(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"content"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"content")
    reader.join()
    assert read == [b"content"]
    assert pipe.is_fifo()


def test_a_folder_is_not_replaced(tmp_path):
    with pytest.raises(CannotWrite, match=r"cannot write .*: Is a directory"):
        write_bytes(tmp_path, b"content")


def test_a_full_disk_is_told_with_the_files_name(tmp_path):
    with pytest.raises(CannotWrite, match="cannot write /dev/full: No space left on device") as told:
        write_bytes(type(tmp_path)("/dev/full"), b"content")
    assert told.value.errno == 28


@pytest.mark.parametrize("name", ["file", "new", "below/this/new"])
def test_a_place_that_can_be_written_to_is_left_as_it_is(tmp_path, name):
    (tmp_path / "file").touch()
    check_place(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "why"), [("", "Is a directory"), ("file/below", "Not a directory"), ("file/below/it", "Not a directory")]
)
def test_a_place_that_cannot_be_written_to_is_found(tmp_path, name, why):
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match=f"cannot write .*: {why}"):
        check_place(tmp_path / name)


def test_a_folder_that_may_not_be_written_to_is_found(tmp_path, monkeypatch):
    # Asked of the system: an administrator, as whom the tests may run, may write to every folder.
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path)
    with pytest.raises(CannotWrite, match=r"cannot write .*: Permission denied"):
        check_place(tmp_path / "below" / "new")
