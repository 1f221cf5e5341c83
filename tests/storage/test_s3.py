"""Models from an S3 stand-in in the real Triton, with a repository written by `python -m
utils.triton.repository`.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import pytest
import requests

from benchmarks.fleet import SMALL
from harness import ROOT, free_ports, launch_server, wait_until
from harness.server import base_environment
from tests.e2e.pictures import as_base64, scene

boto3 = pytest.importorskip("boto3", reason="not installed: boto3: make env-storage")
pytest.importorskip("moto", reason="not installed: moto: make env-storage")
pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEY = {"X-API-Key": "an-operators-own-key"}
ADMIN: dict[str, Any] = {
    "MOBILE_SAM_MODEL_CONTROL_MODE": "explicit",
    "MOBILE_SAM_ADMIN_KEYS": f"ops:{KEY['X-API-Key']}",
}
BUCKET, FOLDER = "models", "fleet/model_repository"
CREDENTIALS: dict[str, Any] = {
    "AWS_ACCESS_KEY_ID": "an-id",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[str]:
    """Run a server with the S3 API; return its address."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path / "storage.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            wait_until(
                lambda: listens(port) or process.poll() is not None,
                what="S3's stand-in does not listen",
            )
            assert process.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def bucket_at(address: str) -> Any:
    """Return an S3 client."""
    return boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
    )


def upload(folder: Path, address: str, prefix: str = "") -> int:
    """Upload a folder to the bucket, below `FOLDER` and `prefix`; return the number of files."""
    client = bucket_at(address)
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        client.upload_file(
            str(path),
            BUCKET,
            str(PurePosixPath(FOLDER, prefix, path.relative_to(folder).as_posix())),
        )
    return len(files)


def test_triton_loads_a_written_repository_from_s3(
    builtin_repository, builtin_server, storage, tmp_path
):
    written = tmp_path / "written"
    done = subprocess.run(
        [sys.executable, "-m", "utils.triton.repository", written],
        cwd=ROOT,
        env={**base_environment(), "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert not [path for path in written.rglob("*") if path.is_symlink()]
    region = {"LocationConstraint": CREDENTIALS["AWS_DEFAULT_REGION"]}
    bucket_at(storage).create_bucket(Bucket=BUCKET, CreateBucketConfiguration=region)
    assert upload(written, storage) > 10

    click: dict[str, Any] = {
        "input_image": as_base64(scene(90)),
        "pos_coords": [[100, 80]],
        "mask_format": "rle",
    }

    address = f"s3://{storage}/{BUCKET}/{FOLDER}"
    settings: dict[str, Any] = {**CREDENTIALS, **ADMIN, **SMALL}
    server = launch_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=address, **settings)
    server.wait_until_ready()
    try:
        info = requests.get(f"{server.url}/info", timeout=60).json()
        assert (info["weights"]["name"], info["model_versions"]) == ("builtin", [1])
        assert info["limits"]["max_image_pixels"] == 25_000_000
        # Only the first answer says how long the encoder took.
        answer, expected = (
            [each.post(**click) for _ in range(2)][-1] for each in (server, builtin_server)
        )
        assert answer.status_code == 200
        # Each response has its own multipart boundary.
        parts = [
            each.content.replace(each.content.splitlines()[0], b"") for each in (answer, expected)
        ]
        assert parts[0] == parts[1]
        assert (
            orjson.dumps({key: info[key] for key in ("weights", "engine")})[1:-1] in answer.content
        )

        # Version 2 has the weights of version 1; only the version in the response matters.
        for model in sorted(path for path in written.iterdir() if path.is_dir()):
            shutil.copytree(model / "1", model / "2")
            assert upload(model / "2", storage, prefix=f"{model.name}/2") > 0
        loaded = requests.post(f"{server.url}/admin/models/load", headers=KEY, timeout=300)
        assert loaded.status_code == 200, loaded.text
        assert requests.get(f"{server.url}/info", timeout=60).json()["model_versions"] == [1, 2]
        versions: list[tuple[int, dict[str, Any]]] = [(2, {}), (1, {"model_version": 1})]
        for version, fields in versions:
            assert f'"model_version":{version}'.encode() in server.post(**click, **fields).content
    finally:
        server.stop()
