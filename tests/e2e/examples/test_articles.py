"""docs/articles.md: `tritonserver` on PATH, and services with BentoML's own Triton runner."""

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http
from PIL import Image
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from benchmarks.objects import iou
from harness import ROOT, free_ports, serving, wait_until
from harness.server import READY_TIMEOUT_S, STOP_TIMEOUT_S
from tests.e2e.answers import NPY_ONLY, parts, segmentation
from tests.e2e.pages import SAMPLES, Reader, blocks, matches

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PAGE = "docs/articles.md"
START, SERVICE, SERVE, CLIENT, SHOWN, DIRECT = blocks(PAGE, (ROOT / PAGE).read_text())
NAMES = ("INPUT0", "INPUT1")
REPOSITORY = Path("examples/articles/model_repository")
PHOTO = (ROOT / SAMPLES / "balloons.jpg").read_bytes()
PROMPTS = {
    "click": {"pos_coords": [[903, 310]], "labels": [1]},
    "clicks": {"pos_coords": [[903, 310], [820, 200]], "labels": [1, 0]},
    "box": {"pos_coords": [[780, 174], [1034, 477]], "labels": [2, 3]},
}
"""Requests as in the article, which are also requests to the service."""


@pytest.fixture(scope="module")
def shell():
    """Environment variables after the page's `eval`."""
    command = next(line for line in START.code.splitlines() if line.startswith("eval"))
    command = command.replace(".venv/bin/python", sys.executable)
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-ec", f"{command}; env -0"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.rstrip("\0").split("\0"))


@contextmanager
def triton(
    shell: dict[str, str], folder: Path, *options: str
) -> Iterator[tritonclient.http.InferenceServerClient]:
    """Run `tritonserver` with the models in a folder's `models`, and yield a client; its log is
    in the folder.
    """
    http, grpc, metrics = free_ports(3)
    settings = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
    settings.append(f"--exit-timeout-secs={STOP_TIMEOUT_S}")  # after its own, the status is 1
    addresses = [f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")]
    command = 'exec tritonserver --model-repository `pwd`/models "$@"'
    log = folder / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", "-c", command, "bash", *settings, *addresses, *options],
            cwd=folder,
            env=shell,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        with tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{http}", network_timeout=60
        ) as client:
            wait_until(
                lambda: server.poll() is not None or is_ready(client),
                READY_TIMEOUT_S,
                log.read_text(),
            )
            assert server.poll() is None, log.read_text()
            yield client
    finally:
        server.terminate()
        assert server.wait(2 * STOP_TIMEOUT_S) == 0


def is_ready(client: tritonclient.http.InferenceServerClient) -> bool:
    try:
        return bool(client.is_server_ready())
    except OSError:  # it does not listen yet
        return False


def tensors(**values: np.ndarray) -> list[tritonclient.http.InferInput]:
    """Return arrays as inputs of a model by name."""
    inputs = []
    for name, array in values.items():
        inputs.append(
            tritonclient.http.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        )
        inputs[-1].set_data_from_numpy(array)
    return inputs


@pytest.fixture(scope="module")
def models(official_repository, tmp_path_factory):
    """Copy of the example's repository with the official weights."""
    folder = tmp_path_factory.mktemp("articles") / REPOSITORY
    folder.mkdir(parents=True)
    (folder / "mobile_sam").symlink_to(ROOT / REPOSITORY / "mobile_sam")
    for link in ("mobile_sam_encoder", "mobile_sam_decoder"):
        assert (ROOT / REPOSITORY / link).resolve() == ROOT / "model_repository" / link
        (folder / link).symlink_to(official_repository / link)
    return folder


@pytest.fixture(scope="module")
def article(shell, models, tmp_path_factory):
    """Run the page's service as in the article."""
    folder = tmp_path_factory.mktemp("article")
    (folder / "article.py").write_text(SERVICE.code)
    (folder / REPOSITORY.parts[0]).symlink_to(models.parents[len(REPOSITORY.parts) - 2])
    _, _, target, *_ = SERVE.code.split()
    with serving(
        folder / "log", target, ["env", f"--chdir={folder}"], PATH=shell["PATH"]
    ) as service:
        yield service


def test_tritonserver_serves_models_copied_from_an_example(shell, tmp_path):
    """The log's first line is not about the missing GPU of a machine without one."""
    for part in ("config.pbtxt", "1/model.py"):
        copy = tmp_path / "models" / "add_sub" / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "examples/ensemble/model_repository/add_sub" / part, copy)
    values = np.random.default_rng(0).random((2, 4), np.float32)
    with triton(shell, tmp_path) as client:
        result = client.infer("add_sub", tensors(**dict(zip(NAMES, values, strict=True))))
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values[0] + values[1])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), values[0] - values[1])
    assert "CUDA" not in (tmp_path / "log").read_text().splitlines()[0]


def test_article_s_service_answers_the_page_s_client(article, tmp_path):
    assert matches(SHOWN, Reader(tmp_path, article.url).run(CLIENT))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_article_s_service_has_the_mask_of_the_main_service(article, official_server, prompt):
    request = {"input_image": base64.b64encode(PHOTO).decode(), **PROMPTS[prompt]}
    rows, png = parts(article.post(**request))
    mask = np.array(json.loads(rows), bool)
    assert (
        iou(mask, np.array(segmentation(official_server.post(**request, **NPY_ONLY)).masks, bool))
        > 0.98
    )
    with Image.open(io.BytesIO(png)) as drawn, Image.open(io.BytesIO(PHOTO)) as photo:
        changed = (np.asarray(drawn) != np.asarray(photo)).any(axis=2)
    assert changed.shape == mask.shape
    assert iou(changed, mask) > 0.9


def test_negative_points_and_invalid_inputs_of_the_article_s_model(
    shell, models, official_server, tmp_path
):
    (tmp_path / "models").symlink_to(models)
    with Image.open(io.BytesIO(PHOTO)) as photo:
        image = np.asarray(photo, np.float32)

    with triton(shell, tmp_path) as client:

        def infer(**changes: np.ndarray) -> np.ndarray:
            values = {
                "pos_coords": np.array([[903, 310]]),
                "neg_coords": np.array([[820, 200]]),
                "labels": np.array([1]),
                "input_image": image,
            }
            mask: np.ndarray = client.infer(
                "mobile_sam", tensors(**{**values, **changes})
            ).as_numpy("mask")
            return mask

        mask = infer()
        for changes, message in (
            ({"input_image": image / 255}, "multiply by 255"),
            ({"pos_coords": np.array([[1281, 3]])}, "expected a point inside the image"),
            ({"labels": np.array([1, 1])}, "labels: expected one per point, got 2 for 1"),
            ({"input_image": image[..., :1]}, "unexpected shape for input 'input_image'"),
        ):
            with pytest.raises(InferenceServerException, match=message) as refused:
                infer(**changes)
            assert refused.value.status() == "400"
        assert (infer() == mask).all()
    request = {
        "input_image": base64.b64encode(PHOTO).decode(),
        "pos_coords": [[903, 310]],
        "neg_coords": [[820, 200]],
    }
    expected = np.array(segmentation(official_server.post(**request, **NPY_ONLY)).masks, bool)
    assert iou(mask.astype(bool), expected) > 0.98


def test_service_with_the_repository_s_own_models_answers_the_page_s_client(
    shell, official_repository, tmp_path
):
    (tmp_path / "direct.py").write_text(DIRECT.code)
    (tmp_path / "model_repository").symlink_to(official_repository)
    with serving(
        tmp_path / "log", "direct.py:svc", ["env", f"--chdir={tmp_path}"], PATH=shell["PATH"]
    ) as service:
        folder = tmp_path / "client"
        folder.mkdir()
        assert matches(SHOWN, Reader(folder, service.url).run(CLIENT))
