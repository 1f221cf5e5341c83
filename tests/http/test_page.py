"""The page at `/ui`, its files, and `/info`."""

import re
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urljoin

import pytest

from sam_onnx import __version__
from utils.api.info import VERSION
from utils.page import FOLDER, IMMUTABLE
from utils.page_version import NOT_SERVED, STYLES, PageVersion

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"""(?:href|src)="([^"#]+)["#]""")
OTHER_VERSION = "/ui/0123456789abcdef"


def versioned() -> str:
    """Return the folder of the page's files as they are."""
    return f"/ui/{PageVersion.read(FOLDER).hash}"


def test_all_files_linked_by_the_page_exist(http):
    page = http.get("/ui")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = {urljoin("/ui", link) for link in LINK.findall(page.text)}
    assert f"{versioned()}/app.js" in links
    assert http.get("/favicon.ico").content == http.get("/ui/icon.svg").content
    for link in links:
        assert http.get(link).status_code == 200, link


def test_trailing_slash_redirects_also_behind_a_prefix(http):
    answer = http.get("/ui/")
    assert answer.status_code == 308
    assert (
        urljoin("https://host/prefix/ui/", answer.headers["location"]) == "https://host/prefix/ui"
    )


FILES = sorted(file for file in FOLDER.rglob("*.*") if file.name not in NOT_SERVED)
KINDS = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".gz": "application/wasm",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
}


@pytest.mark.parametrize("folder", ["/ui", OTHER_VERSION], ids=["no-version", "other-version"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_page_file_has_its_type_and_is_revalidated(http, file, folder):
    path = f"{folder}/{file.relative_to(FOLDER).as_posix()}"
    first = http.get(path)
    assert first.headers["content-type"].split(";")[0] == KINDS[file.suffix]
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.content == file.read_bytes()
    again = http.request("GET", path, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_page_file_of_the_current_version_is_immutable(http, file):
    answer = http.get(f"{versioned()}/{file.relative_to(FOLDER).as_posix()}")
    assert answer.headers["cache-control"] == IMMUTABLE
    assert answer.content == file.read_bytes()


def test_style_sheets_are_one_file_in_the_order_of_the_html(http):
    names = re.findall(r'rel="stylesheet" href="ui/(.+?)"', (FOLDER / "index.html").read_text())
    assert names[0] == "style.css"
    for folder, caching in ((versioned(), IMMUTABLE), (OTHER_VERSION, "no-cache")):
        answer = http.get(f"{folder}/{STYLES}")
        assert answer.content == b"".join((FOLDER / name).read_bytes() for name in names)
        assert answer.headers["content-type"].split(";")[0] == "text/css"
        assert answer.headers["cache-control"] == caching


def test_html_is_not_sent_again_to_a_browser_that_has_it(http):
    page = http.get("/ui")
    assert page.headers["cache-control"] == "no-cache"
    etag = page.headers["etag"]
    # Proxies that compress answers make an entity tag weak.
    for known in (etag, f"W/{etag}"):
        again = http.request("GET", "/ui", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
        assert again.headers["cache-control"] == "no-cache"
    assert http.request("GET", "/ui", headers={"If-None-Match": '"other"'}).status_code == 200


def test_html_preloads_exactly_the_modules_that_its_script_imports(http):
    preloaded = re.findall(r'rel="modulepreload" href="ui/\w{16}/([^"]+)"', http.get("/ui").text)
    assert len(preloaded) == len(set(preloaded))
    imported = re.compile(r'^(?:import .*|} )from "(.+)";$', re.MULTILINE)
    files = [FOLDER / "app.js"]
    for file in files:
        targets = [(file.parent / name).resolve() for name in imported.findall(file.read_text())]
        files += [target for target in dict.fromkeys(targets) if target not in files]
    assert {FOLDER / name for name in preloaded} == set(files[1:])


def test_small_page_file_needs_no_thread(http, monkeypatch):
    http.get("/ui/app.js")  # Starlette checks the folder once
    monkeypatch.setattr("anyio.to_thread.run_sync", Mock(side_effect=AssertionError))
    answer = http.get("/ui/app.js")
    assert (answer.status_code, answer.content) == (200, (FOLDER / "app.js").read_bytes())
    known = {"If-None-Match": answer.headers["etag"]}
    assert http.request("GET", "/ui/app.js", headers=known).status_code == 304


def test_part_of_a_page_file_is_sent(http):
    answer = http.request("GET", "/ui/app.js", headers={"Range": "bytes=1-3"})
    assert (answer.status_code, answer.content) == (206, (FOLDER / "app.js").read_bytes()[1:4])


def test_page_file_removed_since_the_start_is_not_found(http, monkeypatch):
    monkeypatch.setattr("utils.page.PageFiles.lookup_path", lambda *_: ("", None))
    answer = http.get("/ui/app.js")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/ui/absent.js",
        "/ui/index.html",
        "/ui/deno.json",
        "/ui/../service.py",
        "/ui/..%2f..%2f__init__.py",
        "/ui/%2e%2e/__init__.py",
        f"{OTHER_VERSION}/absent.js",
        f"{OTHER_VERSION}/index.html",
        f"{OTHER_VERSION}/../../service.py",
        f"{OTHER_VERSION}/..%2f..%2fservice.py",
        f"{OTHER_VERSION}/%2e%2e/app.js",
        f"{OTHER_VERSION}{OTHER_VERSION.removeprefix('/ui')}/app.js",
        f"{OTHER_VERSION}/",
        "/ui/0123456789ABCDEF/app.js",
    ],
)
def test_other_paths_below_the_page_are_not_found(http, path):
    answer = http.get(path)
    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:mobile-sam:not-found"


NAMES = {"http://www.w3.org/2000/svg", "http://ns.adobe.com/xap/1.0/\\0"}
"""Names of formats that look like addresses."""


def test_page_files_load_nothing_from_other_origins():
    for file in [*FOLDER.glob("*.js"), *FOLDER.glob("*.css"), FOLDER / "index.html"]:
        addresses = re.findall(r"https?://[^\s\"'<>]+", file.read_text())
        assert set(addresses) <= NAMES, file


def test_info_is_served_without_triton(http):
    assert http.get("/info").json() == {
        "version": VERSION,
        "weights": None,
        "engine": None,
        "triton": None,
        "key_needed": False,
        "local_decoding": True,
        "limits": {
            "max_body_bytes": 32 * 2**20,
            "max_image_pixels": 25_000_000,
            "max_objects": 256,
            "timeout_s": 55,
        },
        "model_versions": [],
        "loaded": [],
        "encode_s": None,
    }


def test_swagger_page_and_its_files_are_served_locally(http):
    page = http.get("/").text
    files = re.findall(r'(?:src|rel="[^>]*href)="\.(/[^"]+)"', page)
    assert len(files) == 5
    assert {http.get(file).status_code for file in files} == {200}
    assert "://" not in page


def test_every_part_has_the_version_of_the_project(http):
    files = [
        ROOT / name
        for name in ("pyproject.toml", "client/pyproject.toml", "orchestrator/pyproject.toml")
    ]
    versions = {
        re.findall(r'^version = "(.+)"$', file.read_text(), re.MULTILINE)[0] for file in files
    }
    (label,) = re.findall(r'image\.version="(.+?)"', (ROOT / "Dockerfile").read_text())
    served = http.get("/docs.json").json()["info"]["version"]
    assert {*versions, label, __version__, served} == {VERSION}
