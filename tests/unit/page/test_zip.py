"""ZIP files are read by Python's zipfile, and its files by the page; damaged ones give one
sentence.
"""

import base64
import io
import struct
import zipfile

import pytest

from tests.unit.page.formats import FormatError, encoded, run

FILES: dict[str, bytes | str] = {
    "a folder/straße 空.txt": "hello " * 1000,
    "empty.txt": b"",
    "noise.bin": bytes(range(256)) * 3,
    "picture.png": b"\x89PNG" + bytes(1000),
}
CONTENTS = {
    path: content if isinstance(content, bytes) else content.encode()
    for path, content in FILES.items()
}


def unzip(content: bytes) -> dict[str, bytes]:
    found = run("unzip", content=base64.b64encode(content).decode())
    return {file["path"]: base64.b64decode(file["content"]) for file in found}


def packed(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for path, one in CONTENTS.items():
            archive.writestr(path, one)
        archive.writestr("folder/", "")
    return content.getvalue()


def test_zip_is_read_by_zipfile():
    content = base64.b64decode(run("zip", files=encoded(FILES)))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert {path: archive.read(path) for path in archive.namelist()} == CONTENTS
        methods = [archive.getinfo(path).compress_type for path in CONTENTS]
    assert methods == [
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_STORED,
    ]
    assert unzip(content) == CONTENTS


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"]
)
def test_files_of_zipfile_are_read(method):
    assert unzip(packed(method)) == CONTENTS


def test_a_path_given_twice_is_refused():
    with pytest.raises(FormatError, match="occurs twice"):
        run("zip", files=[*encoded({"a/b": "1"}), *encoded({"a//b": "2"})])


def test_paths_that_leave_the_folder_are_cut():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("../../etc/passwd", "x")
        archive.writestr("C:\\windows\\b.txt", "y")
    assert set(unzip(content.getvalue())) == {"etc/passwd", "windows/b.txt"}


def directory_at(content: bytes) -> int:
    return int.from_bytes(content[-6:-2], "little")


def patched(offset: int, layout: str, value: int) -> bytes:
    """Return a ZIP with a field of its first directory entry changed."""
    content = bytearray(packed())
    struct.pack_into(layout, content, directory_at(packed()) + offset, value)
    return bytes(content)


DAMAGED = {
    "text": (b"hello", "not a ZIP file"),
    "empty": (b"", "not a ZIP file"),
    "half": (packed()[: len(packed()) // 2], "not a ZIP file"),
    "start missing": (packed()[500:], "damaged"),
    "false count": (packed()[:-12] + b"\xff\x00" + packed()[-10:], "ends early"),
    "encrypted": (patched(8, "<H", 1), "is encrypted"),
    "unknown method": (patched(10, "<H", 99), "method 99, which is not supported"),
    "false checksum": (patched(16, "<I", 5), "checksum is wrong"),
    "false size": (patched(24, "<I", 5), "should have 5 bytes, but has more"),
    "bomb": (patched(24, "<I", 2**31), "the compressed data is damaged"),
    "long name": (patched(28, "<H", 65535), "ends early"),
    "false offset": (patched(42, "<I", 2**30), "its header is missing"),
    "false packed size": (patched(20, "<I", 2**30), "its end is missing"),
}


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_zip_files_give_one_sentence(content, message):
    with pytest.raises(FormatError, match=message):
        unzip(content)
