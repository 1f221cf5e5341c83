"""`mobile-sam embed --label-studio` with a fake Label Studio and a fake service."""

import hashlib

import httpx
import pytest

from tests.unit.client.mobile_sam_client.commands.fake_sam import picture

SERVER = "http://localhost:8080"
EMBED = f"embed --label-studio {SERVER} --project 7"
CONFIG = '<View><Image name="image" value="$img"/></View>'


class FakeLabelStudio:
    """Label Studio with a project of three tasks, in pages of two."""

    def __init__(self):
        self.files = {"/data/upload/1/a.png": picture(1), "/b.png": picture(2)}
        self.images = [
            "/data/upload/1/a.png",
            "http://images.example/b.png",
            "/data/upload/1/gone.png",
        ]
        self.token, self.requests, self.refreshes = "Token token", [], 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, authorization = request.url.path, request.headers.get("Authorization", "")
        self.requests.append((request.url.host, path, authorization))
        if path == "/api/token/refresh/":
            self.refreshes += 1
            self.token = f"Bearer access-{self.refreshes}"
            return httpx.Response(200, json={"access": f"access-{self.refreshes}"})
        if request.url.host == "localhost" and authorization != self.token:
            return httpx.Response(401)
        if path == "/api/projects/7/":
            return httpx.Response(200, json={"label_config": CONFIG})
        if path == "/api/tasks":
            first = 2 * int(request.url.params["page"]) - 2
            tasks = [{"data": {"img": image}} for image in self.images[first : first + 2]]
            return httpx.Response(200, json={"tasks": tasks, "total": len(self.images)})
        return (
            httpx.Response(200, content=self.files[path])
            if path in self.files
            else httpx.Response(404)
        )


@pytest.fixture
def studio(monkeypatch):
    fake, client = FakeLabelStudio(), httpx.AsyncClient
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", "token")

    def mocked(**options):
        return client(**{"transport": httpx.MockTransport(fake), **options})

    monkeypatch.setattr(httpx, "AsyncClient", mocked)
    return fake


def test_all_images_are_encoded_and_failures_are_named(run, sam, studio):
    done = run(EMBED)
    assert done.exit_code == 1
    encoded = [
        f"{hashlib.sha256(picture(n)).hexdigest()}  {name}"
        for n, name in enumerate(studio.images[:2], 1)
    ]
    assert sorted(done.stdout.splitlines()) == sorted(encoded)
    assert (
        done.stderr
        == "error: /data/upload/1/gone.png: http://localhost:8080/data/upload/1/gone.png: status"
        " 404\n"
    )
    assert [seen for seen in studio.requests if seen[0] != "localhost"] == [
        ("images.example", "/b.png", "")
    ]


def test_personal_access_token_is_exchanged(run, sam, studio, monkeypatch):
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", "a.b.c")
    studio.images = studio.images[:1]
    assert run(EMBED).exit_code == 0
    assert studio.refreshes == 1


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "set the environment variable LABEL_STUDIO_API_KEY"),
        ("wrong", "LABEL_STUDIO_API_KEY is wrong"),
    ],
    ids=["none", "wrong"],
)
def test_right_token_is_needed(run, sam, studio, monkeypatch, token, message):  # noqa: PLR0917
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", token)
    done = run(EMBED)
    assert (done.exit_code, message in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    ["", "--project 7", f"--label-studio {SERVER}", f"a.png --label-studio {SERVER} --project 7"],
    ids=["nothing", "no server", "no project", "both"],
)
def test_images_or_a_project_are_needed(run, arguments):
    done = run(f"embed {arguments}")
    assert (done.exit_code, "expected images, or --label-studio with --project" in done.stderr) == (
        2,
        True,
    )
