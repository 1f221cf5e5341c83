"""The command line as a whole, with `mobile-sam embed` and `mobile-sam info`."""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import mobile_sam_client
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import problem_reply

MODULE = (sys.executable, "-m", "mobile_sam_client")


def run_process(*command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a separate process that can import the client."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(mobile_sam_client.__file__).parents[1]),
        **environment,
    }
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=300)


@pytest.mark.parametrize("command", ["segment", "everything", "batch", "convert", "embed", "info"])
def test_every_command_is_listed_and_has_examples(run, command):
    assert f" {command} " in run("--help").output
    done = run(f"{command} --help")
    assert done.exit_code == 0
    assert f"mobile-sam {command}" in done.output.partition("Examples")[2]


def test_version_is_that_of_the_package(run):
    assert (
        run("--version").output == f"mobile-sam {importlib.metadata.version('mobile-sam-client')}\n"
    )


def test_control_characters_in_file_names_are_replaced(run, sam, tmp_path):
    (tmp_path / "\x1b[2Jphoto.png").write_bytes(picture(1))
    done = run("embed \x1b[2Jphoto.png \x1b[2Jabsent.png")
    assert done.stdout.endswith("  \N{REPLACEMENT CHARACTER}[2Jphoto.png\n")
    assert (
        done.stderr == "error: \N{REPLACEMENT CHARACTER}[2Jabsent.png: No such file or directory\n"
    )


def test_unencodable_file_name_is_escaped():
    done = run_process(
        *MODULE, "segment", "\udcff.png", "--point", "1,1", PYTHONIOENCODING="latin-1"
    )
    assert (done.returncode, done.stderr) == (1, b"error: \\ufffd.png: No such file or directory\n")


def test_ctrl_c_prints_one_line(run, sam, photo):
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    sam.replies[photo] = interrupt
    done = run("embed photo.png")
    assert (done.exit_code, done.stderr) == (130, "error: interrupted\n")


def test_broken_pipe_is_not_an_error():
    assert run_process("/bin/sh", "-c", f"{' '.join(MODULE)} --help | head -c 1").stderr == b""


def test_embed_prints_ids_and_continues_after_failures(run, sam, photo, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"bad")
    (tmp_path / "last.png").write_bytes(last := picture(2))
    sam.replies[b"bad"] = problem_reply(422, "invalid-image", "it is damaged")
    done = run("embed photo.png absent.png bad.png last.png")
    assert done.exit_code == 1
    ids = [
        f"{hashlib.sha256(file).hexdigest()}  {name}.png"
        for file, name in ((photo, "photo"), (last, "last"))
    ]
    assert done.stdout.splitlines() == ids
    assert done.stderr.splitlines() == [
        "error: absent.png: No such file or directory",
        "error: bad.png: 422 invalid-image: it is damaged",
    ]


def test_embed_takes_all_images_of_a_folder_each_once(run, sam, photo, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b.png").write_bytes(picture(2))
    (tmp_path / "notes.txt").write_text("no image")
    done = run("embed . ./photo.png --json")
    assert (done.exit_code, done.stderr) == (0, "")
    ids = {"inner/b.png": picture(2), "photo.png": photo}
    found = {line["image"]: line["image_id"] for line in map(json.loads, done.stdout.splitlines())}
    assert found == {name: hashlib.sha256(file).hexdigest() for name, file in ids.items()}


def test_unreachable_service_is_reported_without_retries(run, sam, photo, waits):
    sam.unreachable = True
    done = run("embed photo.png")
    assert done.exit_code == 1
    assert (
        done.stderr
        == "error: cannot connect to http://127.0.0.1:3000 (refused); start the service with `make"
        " serve`, or set its address in MOBILE_SAM_URL\n"
    )
    assert not waits


def test_retries_are_printed(run, sam, photo, waits):
    def busy(request: httpx.Request) -> httpx.Response:
        sam.replies.clear()
        return problem_reply(503, "busy", "later", Retry_After="7")(request)

    sam.replies[photo] = busy
    done = run("embed photo.png")
    assert (done.exit_code, waits) == (0, [7])
    assert done.stderr == "retrying in 7.0 s (1 of 5): 503 busy: later (request the-request)\n"


def test_info_prints_the_service_details(run, sam):
    done = run("info")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "service   http://127.0.0.1:3000, version 1.2.3",
        "state     ready",
        "weights   none (sha256 000000000000)",
        "          A note.",
        "engine    encoder an encoder, decoder a decoder",
        "          0.4 s for a new image",
        "versions  1, 3 (the last is the default)",
        "          1: none, encoder an encoder, decoder a decoder",
        "          3: none, encoder an encoder, decoder a decoder",
        "API key   needed: MOBILE_SAM_API_KEY",
        "limits    0.002 megapixels an image",
        "          0.000953674 MiB and 3 objects a request",
    ]


def test_info_prints_why_the_service_is_not_ready(run, sam):
    sam.ready, sam.weights = False, None
    lines = run("info").stdout.splitlines()
    assert lines[1:3] == ["state     not ready: the model loads", "weights   unknown"]


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:3000", "http://localhost:3000"),
        ("[::1]:3000/", "http://[::1]:3000"),
        ("https://sam.test:8443", "https://sam.test:8443"),
    ],
)
def test_address_needs_no_scheme(run, sam, monkeypatch, address, url):
    assert json.loads(run(f"info --json --url {address}").stdout)["url"] == url
    assert json.loads(run(f"--url {address} info --json").stdout)["url"] == url
    assert json.loads(run(f"--url other.test info --json --url {address}").stdout)["url"] == url
    monkeypatch.setenv("MOBILE_SAM_URL", address)
    assert json.loads(run("info --json").stdout)["url"] == url


def test_wrong_environment_is_reported(run, monkeypatch):
    monkeypatch.setenv("MOBILE_SAM_API_KEY", "schlüssel")
    done = run("info")
    assert (done.exit_code, done.stderr) == (
        1,
        "error: MOBILE_SAM_API_KEY: expected printable ASCII\n",
    )
    monkeypatch.setenv("MOBILE_SAM_URL", "ftp://sam.test")
    done = run("info")
    assert (done.exit_code, "got 'ftp://sam.test'" in done.stderr) == (2, True)
