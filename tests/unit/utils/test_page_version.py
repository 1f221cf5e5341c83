"""Versions of the page's files, and edits of these files while the service runs."""

import asyncio
import os
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from utils.page import IMMUTABLE, REVALIDATED, PageFiles
from utils.page_version import PageVersion, imported_modules

HTML = """<link rel="icon" href="ui/icon.svg">
<link rel="stylesheet" href="ui/a.css">
<link rel="stylesheet" href="ui/b.css">
<script type="module" src="ui/app.js"></script>
<img src="ui/icon.svg">
<a href="./">API</a>
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small page."""
    files = {
        "index.html": HTML,
        "a.css": "a {}\n",
        "b.css": "b {}\n",
        "icon.svg": "<svg/>",
        "app.js": 'import "./parts/one.js";\n',
        "parts/one.js": "1;\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def edit(file: Path, content: str) -> None:
    """Change a file, also if the file system's clock has not moved on."""
    before = file.stat().st_mtime_ns
    file.write_text(content)
    os.utime(file, ns=(before + 1, before + 1))


def answer(files: PageFiles, path: str) -> tuple[bytes, Headers]:
    """Return the body and the headers of an answer; `/ui` is the HTML."""
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    app = files.answer_html if path == "/ui" else files
    asyncio.run(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in messages)
    return body, Headers(raw=messages[0]["headers"])


def test_html_refers_to_the_version_and_keeps_other_links(folder):
    version = PageVersion.read(folder)
    path = f"ui/{version.hash}"
    assert version.html.decode() == (
        f'<link rel="icon" href="{path}/icon.svg">\n'
        f'<link rel="stylesheet" href="{path}/styles.css">\n'
        f'<link rel="modulepreload" href="{path}/parts/one.js">\n'
        f'<script type="module" src="{path}/app.js"></script>\n'
        f'<img src="{path}/icon.svg">\n'
        '<a href="./">API</a>\n'
    )
    assert version.styles == b"a {}\nb {}\n"


def test_html_says_whether_there_is_a_runtime_for_masks_in_the_browser(folder):
    assert b"onnxruntime" not in PageVersion.read(folder).html
    (folder / "onnxruntime").mkdir()
    (folder / "onnxruntime" / "ort.mjs").write_text("")
    html = PageVersion.read(folder).html
    assert html.index(b'<meta name="onnxruntime">') < html.index(b"<script")


def test_hash_depends_on_contents_and_not_on_times(folder):
    before = PageVersion.read(folder)
    os.utime(folder / "app.js", (1, 1))
    assert not before.is_current()
    assert PageVersion.read(folder).hash == before.hash
    (folder / "parts" / "one.js").write_text("2;\n")
    assert PageVersion.read(folder).hash != before.hash


def test_html_names_a_new_version_once_a_file_has_changed(folder):
    first = PageVersion.read(folder)
    files = PageFiles(first)
    assert answer(files, "/ui")[0] == first.html
    edit(folder / "app.js", "2;\n")
    body, headers = answer(files, "/ui")
    second = PageVersion.read(folder)
    assert second.hash != first.hash
    assert (body, headers["etag"]) == (second.html, second.etag)
    for version, caching in ((first, REVALIDATED), (second, IMMUTABLE)):
        content, headers = answer(files, f"/ui/{version.hash}/app.js")
        assert (content, headers["cache-control"]) == (b"2;\n", caching)


def test_file_that_changed_after_the_html_is_not_kept_under_its_old_version(folder):
    version = PageVersion.read(folder)
    files = PageFiles(version)
    for name in ("app.js", "a.css"):
        edit(folder / name, "9;\n")
    assert answer(files, f"/ui/{version.hash}/icon.svg")[1]["cache-control"] == IMMUTABLE
    expected = {"app.js": b"9;\n", "styles.css": b"9;\nb {}\n"}
    for name, content in expected.items():
        body, headers = answer(files, f"/ui/{version.hash}/{name}")
        assert (body, headers["cache-control"]) == (content, REVALIDATED)


def test_removed_file_does_not_stop_the_page(folder):
    files = PageFiles(PageVersion.read(folder))
    (folder / "parts" / "one.js").unlink()
    assert b"one.js" not in answer(files, "/ui")[0]


def test_imports_are_found_in_every_form_and_nothing_else_is():
    modules = {
        "app.js": (
            'import { a } from "./a.js";\nimport {\n  b,\n} from "./sub/b.js";\n'
            'import "./c.js";\nexport * from "./d.js";\n'
            '/** @type {import("./types.js").T} */\nconst late = import("./late.js");\n'
            'export const word = "from";\nexport function f() { return "./not.js"; }\n'
        ),
        "sub/b.js": 'import { a } from "../a.js";\nimport { e } from "./e.js";\n',
        **dict.fromkeys(("a.js", "c.js", "d.js", "sub/e.js", "types.js", "late.js", "not.js"), ""),
    }
    assert imported_modules("app.js", modules) == ["a.js", "sub/b.js", "c.js", "d.js", "sub/e.js"]
