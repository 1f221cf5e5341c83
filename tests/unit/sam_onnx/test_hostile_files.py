"""Weights files that are no files, damaged, or made to cost much: one printable line, in bounded
memory.
"""

import io
import json
import os
import random
import socket
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from sam_onnx import CheckpointError, archives, checkpoint, files, repository, weights
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.decoder import build_decoder
from sam_onnx.encoder import build_encoder
from tests.unit.sam_onnx.test_torch_files import VALUES, rejection, tensor, write_legacy, write_zip


@pytest.fixture(params=["named pipe", "socket", "folder", "device", "linked pipe"])
def special(request, tmp_path, monkeypatch):
    """Path of something that is no regular file, and its kind."""
    monkeypatch.chdir(tmp_path)  # a socket's path has at most 108 characters
    path = tmp_path / "weights.pt"
    kind = request.param
    if kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
        kind = "named pipe"
    return path, f"a {kind}"


def test_what_is_no_regular_file_is_refused_before_it_is_opened(special, output, run):
    path, kind = special
    expected = f"cannot read the weights file {path}: expected a regular file, got {kind}"
    assert run("--weights", path, status=1) == f"error: {expected}\n"
    with pytest.raises(CheckpointError, match=f"^{expected}$"):
        load_checkpoint(path)
    assert not output.exists()


def test_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "weights.pt")
    regular = Path(__file__).stat()
    monkeypatch.setattr(Path, "stat", lambda _: regular)
    with pytest.raises(OSError, match="expected a regular file, got a named pipe"):
        files.open_regular(tmp_path / "weights.pt")


def test_huge_sparse_file_is_refused_before_it_is_read(tmp_path, run):
    with (tmp_path / "a.pt").open("wb") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)
    error = run("--weights", tmp_path / "a.pt", status=1)
    assert error.endswith(
        f"a.pt: expected a file of at most 6442450944 bytes, got {files.MAX_FILE_BYTES + 1}\n"
    )


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    """Return an array in NumPy's format with this header."""
    text = header.encode("latin-1")
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data


def npz(
    path: Path, *arrays: bytes, name: str = "a.npy", compression: int = zipfile.ZIP_STORED
) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", compression) as archive:
        warnings.simplefilter("ignore")  # an entry twice
        for array in arrays:
            archive.writestr(name, array)
    return path


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,", "damaged"),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1L, ''' }",
            "damaged",
        ),  # tokenize.TokenError
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999,), }",
            "damaged",
        ),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "damaged"),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1099511627776), }",
            "damaged",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824,), }",
            "damaged|not enough memory",
        ),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "damaged"),
        ("(" * 9000, "damaged|not enough memory"),
        ("{" * 20_000, "damaged"),
    ],
    ids=[
        "truncated",
        "tokens",
        "overflow",
        "negative",
        "product",
        "large",
        "objects",
        "deep",
        "long",
    ],
)
def test_hostile_header_of_an_array_is_one_line(tmp_path, header, message, recwarn):
    found, peak = rejection(npz(tmp_path / "a.npz", npy(header)))
    assert any(part in found for part in message.split("|"))
    assert found.isprintable()
    assert peak < 2**30 or "1073741824" in header  # allocated, but never touched
    assert not recwarn.list


def test_damaged_compressed_entry_is_one_line(tmp_path):
    path = npz(tmp_path / "a.npz", npy("{}" * 500), compression=zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    content[35:45] = b"\xff" * 10
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive, pytest.raises(zlib.error):
        archive.read("a.npy")
    with pytest.raises(CheckpointError, match=r"^truncated or damaged file a\.npz: Error -3"):
        load_checkpoint(path)


def test_entries_twice_are_refused(tmp_path):
    array = io.BytesIO()
    np.save(array, VALUES)
    path = npz(tmp_path / "a.npz", array.getvalue(), array.getvalue())
    with pytest.raises(CheckpointError, match=r"^expected each entry once, got a\.npy twice$"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"]
)
def test_entries_that_python_decompresses_without_a_bound_are_refused(tmp_path, compression):
    found, peak = rejection(npz(tmp_path / "a.npz", bytes(2**26), compression=compression))
    assert found.startswith("expected stored or deflated entries, got a.npy by ")
    assert peak < 2**22


def test_long_list_of_entries_is_refused_before_it_is_read(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for number in range(1000):
            archive.writestr(f"{number}.npy", b"")
    monkeypatch.setattr(archives, "MAX_DIRECTORY_BYTES", 1000)
    with pytest.raises(
        CheckpointError, match=r"^expected a list of entries of at most 1000 bytes, got \d+$"
    ):
        load_checkpoint(tmp_path / "a.npz")


def test_arrays_much_larger_than_their_file_are_refused_before_they_are_unpacked(tmp_path):
    array = io.BytesIO()
    np.save(array, np.zeros(2**23, np.float32))
    path = npz(tmp_path / "a.npz", array.getvalue(), compression=zipfile.ZIP_DEFLATED)
    found, peak = rejection(path)
    assert found == f"expected arrays of at most {2**24} bytes in a file of this size, got more"
    assert peak < 2**20


def test_number_of_tensors_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "MAX_TENSORS", 2)
    np.savez(tmp_path / "a.npz", **{str(number): VALUES for number in range(3)})
    with pytest.raises(CheckpointError, match=r"^expected at most 2 tensors, got 3$"):
        load_checkpoint(tmp_path / "a.npz")


@pytest.mark.parametrize("write", [write_zip, write_legacy], ids=["zip", "legacy"])
def test_tensors_that_share_their_values_many_times_are_refused(tmp_path, write, monkeypatch):
    monkeypatch.setattr(checkpoint, "MIN_BOUNDED_BYTES", 1)
    values = np.zeros(10_000, np.float32)
    content = {str(number): tensor("0", (10_000,)) for number in range(20)}
    path = write(tmp_path / "a.pt", content, {"0": values})
    with pytest.raises(
        CheckpointError, match=r"^expected tensors of at most \d+ bytes in a file of \d+, got more$"
    ):
        load_checkpoint(path)


def test_legacy_keys_that_name_a_storage_twice_are_refused(tmp_path):
    path = write_legacy(
        tmp_path / "a.pth", {"a": tensor("0", (3, 4))}, {"0": VALUES}, keys=["0", "0"]
    )
    with pytest.raises(CheckpointError, match="expected each storage once"):
        load_checkpoint(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, checkpoint.MAX_HEADER_BYTES + 1])
def test_long_safetensors_header_is_refused_before_the_file_is_read(tmp_path, length):
    with (tmp_path / "a.safetensors").open("wb") as file:
        file.write(length.to_bytes(8, "little"))
        file.truncate(2**28)
    found, peak = rejection(tmp_path / "a.safetensors")
    expected = f"expected a header of at most {checkpoint.MAX_HEADER_BYTES} bytes, got {length}"
    assert found == f"truncated or damaged file a.safetensors: {expected}"
    assert peak < 2**20


@pytest.mark.parametrize(
    "name", ["a\x1b[2Jb", "a\nerror: b", "a\x9bb", "a\u202eb", "a\u2028b", "x" * 10_000], ids=ascii
)
def test_names_in_a_file_are_shown_escaped_and_short(tmp_path, run, name):
    header = json.dumps({name: {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    error = run("--weights", path, status=1)
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)
    shown = f"{shown[:120]}..." if len(shown) > 120 else shown
    assert error == f"error: expected {shown} to hold numbers of a type in NumPy, got F8_E4M3\n"


def test_name_of_the_file_is_shown_escaped(tmp_path, run):
    path = tmp_path / "a\x1b[2J\nb.pt"
    path.write_bytes(b"no weights")
    assert run("--weights", path, status=1).endswith("got a\\x1b[2J\\nb.pt of another format\n")


def test_file_that_changes_while_it_is_read_is_not_exported_under_its_old_hash(
    output, run, checkpoint, vit_checkpoint, monkeypatch
):
    digest_of = repository.sha256_of

    def swapped(*paths: Path) -> str:
        digest = digest_of(*paths)
        if vit_checkpoint.exists():
            vit_checkpoint.replace(checkpoint)
        return digest

    monkeypatch.setattr(weights, "sha256_of", swapped)
    error = run("--weights", checkpoint, status=1)
    assert (
        error == f"error: the weights file {checkpoint} changed while it was read; run the command"
        " again\n"
    )
    assert not output.exists()


def seeds(folder: Path) -> dict[str, bytes]:
    """Return an intact small file of each form, by name."""
    content = {"a": tensor("0", (3, 4)), "h": tensor("1", (12,), "HalfStorage")}
    storages: dict[str, Any] = {"0": VALUES, "1": VALUES.astype(np.float16)}
    np.savez(folder / "a.npz", a=VALUES, b=VALUES.T)
    np.savez_compressed(folder / "compressed.npz", a=VALUES, b=VALUES.T)
    write_zip(folder / "a.pt", content, storages)
    write_zip(folder / "compressed.pt", content, storages, compression=zipfile.ZIP_DEFLATED)
    write_legacy(folder / "legacy.pth", content, storages)
    (folder / "a.safetensors").write_bytes(save({"a": VALUES, "b": VALUES.astype(np.float16)}))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


HOSTILE = (
    b"\xff" * 2,
    b"\xff" * 4,
    b"\xff" * 8,
    b"\0" * 4,
    b"(",
    b"{",
    b"'",
    b"\n",
    b"1e999",
    b"NaN",
    b"9" * 20,
)


def mutated(content: bytes, generator: random.Random) -> bytes:
    """Return a file with bits flipped, parts overwritten, inserted, repeated or removed, or its
    end cut off.
    """
    data = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 3, 8))):
        place, kind, part = (
            generator.randrange(len(data) + 1),
            generator.randrange(6),
            generator.choice(HOSTILE),
        )
        length = generator.randrange(1, 60)
        if kind in {0, 1} and place < len(data):
            data[place] ^= 1 << generator.randrange(8)
        elif kind == 2:
            data[place : place + len(part)] = part
        elif kind == 3:
            data[place:place] = data[: 2 * length][length:] if length % 2 else part
        elif kind == 4:
            del data[place : place + length]
        elif length > 40:
            del data[place:]
    return bytes(data)


@pytest.mark.slow
def test_damaged_files_of_every_form_are_one_line_errors(tmp_path, recwarn):
    generator = random.Random(0)
    intact = seeds(tmp_path)
    refused = dict.fromkeys(intact, 0)
    messages: list[str] = []
    for number in range(3000):
        name = [*intact][number % len(intact)]
        path = tmp_path / name
        path.write_bytes(mutated(intact[name], generator))
        try:
            load_checkpoint(path)
        except CheckpointError as error:
            refused[name] += 1
            messages.append(str(error))
    assert all(message.isprintable() and len(message) < 2100 for message in messages)
    assert min(refused.values()) > 100
    assert not recwarn.list


def test_small_tables_that_would_expand_to_gigabytes_are_refused(small_state):
    biases = "image_encoder.layers.1.blocks.0.attn.attention_biases"
    with pytest.raises(
        CheckpointError,
        match=r"^expected at most 2097152 biases of an attention, got 2 x 256\*\*4$",
    ):
        build_encoder({**small_state, biases: np.zeros((2, 2**16), np.float32)})
    width = 4098
    wide = {
        key: np.zeros([width if size == 64 else size for size in value.shape], np.float32)
        for key, value in small_state.items()
        if key.startswith(
            (
                "prompt_encoder.no",
                "prompt_encoder.point",
                "mask_decoder.mask_t",
                "mask_decoder.iou_t",
            )
        )
    }
    with pytest.raises(
        CheckpointError, match=r"^expected an embedding of at most 4096 channels, got 4098$"
    ):
        build_decoder({**small_state, **wide})
