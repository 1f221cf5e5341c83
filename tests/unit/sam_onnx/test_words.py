"""Words that choose published weights, with and without a checksum, and recipes in front of a
path.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import ROOT
from sam_onnx import weights
from sam_onnx.sources import OFFICIAL, PUBLISHED, UNSERVED, WebFile
from tests.unit.sam_onnx.conftest import record

Publish = Callable[..., str]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Function that makes a word choose a file in the cache; it returns the file's SHA-256,
    which the word may know.
    """

    def publish(word: str, path: Path, *, known: bool = True) -> str:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        size = path.stat().st_size if known else None
        file = WebFile(f"http://127.0.0.1:1/{path.name}", size, digest if known else "")
        monkeypatch.setattr(weights, "PUBLISHED", {word: file})
        return digest

    monkeypatch.setenv("MOBILE_SAM_CACHE_DIR", str(tmp_path))
    return publish


def test_word_exports_the_published_file_and_names_its_encoder(
    output, run, publish, vit_checkpoint
):
    digest = publish("sam_vit_b", vit_checkpoint)
    run("--weights", "sam_vit_b")
    found = record(output)
    assert (found["name"], found["sha256"]) == ("sam_vit_b", digest)
    assert found["note"] == "The authors' checkpoint, vit.npz."
    assert (found["descriptor"]["architecture"], found["descriptor"]["batch"]) == ("vit", 1)
    assert "up to date with sam_vit_b weights" in run("--weights", vit_checkpoint)
    vit_checkpoint.unlink()
    assert "up to date with sam_vit_b weights" in run("--weights", f"sam_vit_b@{digest}")


@pytest.mark.parametrize("word", ["sam_vit_b", "tinysam"])
def test_word_whose_file_cannot_be_had_names_its_address_and_the_other_way(
    output, run, publish, checkpoint, word
):
    publish(word, checkpoint)
    checkpoint.unlink()
    assert run("--weights", word, status=1).splitlines() == [
        "fetching failed: cannot download http://127.0.0.1:1/small.npz: cannot connect",
        (
            f"error: {word}: cannot fetch small.npz from http://127.0.0.1:1/small.npz; try again,"
            f" or give the path of a copy (WEIGHTS={'tinysam:' if word == 'tinysam' else ''}path)"
        ),
    ]
    assert not output.exists()


def test_hash_of_a_file_without_a_known_one_is_reported_and_can_be_pinned(
    output, run, publish, checkpoint
):
    digest = publish("sam_vit_b", checkpoint, known=False)
    note = (
        f"note: no SHA-256 of small.npz is known; WEIGHTS=sam_vit_b@{digest} accepts only this one"
    )
    assert note in run("--weights", "sam_vit_b").splitlines()
    assert record(output)["sha256"] == digest
    assert "note: no" not in run("--weights", f"sam_vit_b@{digest}")
    other = "0" * 64
    assert run("--weights", f"sam_vit_b@{other}", status=1).startswith(
        "fetching failed: cannot download"
    )
    assert record(output)["sha256"] == digest


@pytest.mark.parametrize("pin", ["", "abc", "G" * 64])
def test_malformed_hash_is_one_line(run, pin):
    message = f"error: expected tinysam@ and the 64 hex digits of a SHA-256, got '{pin}'\n"
    assert run("--weights", f"tinysam@{pin}", status=1) == message


def test_tinysam_has_its_recipe_as_a_word_and_in_front_of_a_path(output, run, publish, checkpoint):
    publish("tinysam", checkpoint)
    run("--weights", "tinysam")
    assert record(output)["descriptor"]["single_mask"] == "best_of_three"
    assert "up to date with tinysam weights" in run("--weights", f"tinysam:{checkpoint}")
    run("--weights", checkpoint)
    assert record(output)["descriptor"]["single_mask"] == "first"


def test_recipe_for_another_encoder_is_one_line(run, checkpoint, vit_checkpoint):
    kinds = {
        "tinysam": ("mobile_sam", "vit", vit_checkpoint),
        "medsam": ("vit", "mobile_sam", checkpoint),
    }
    for recipe, (expected, got, path) in kinds.items():
        message = f"error: {recipe}: expected weights of a {expected} encoder, got a {got} one\n"
        assert run("--weights", f"{recipe}:{path}", status=1) == message


@pytest.mark.parametrize("word", UNSERVED)
def test_relative_that_is_not_served_is_one_line_with_the_nearest(run, word):
    line = run("--weights", word, status=1)
    assert re.fullmatch(rf"error: {word} is not served: its .*; nearest is (.*)\n", line)
    assert line.split()[-1] in PUBLISHED


@pytest.mark.parametrize(
    ("word", "meant"),
    [("sam2.1_tiny", "sam2.1_hiera_tiny"), ("edge_sam", "edgesam"), ("offical", "official")],
)
def test_misspelt_word_is_answered_with_the_one_that_was_meant(run, word, meant):
    message = (
        f"error: cannot read the weights file {word}: No such file or directory; did you mean"
        f" {meant}?\n"
    )
    assert run("--weights", word, status=1) == message


def test_words_choose_files_of_the_authors():
    addresses = r"https://(dl\.fbaipublicfiles\.com/segment_anything(_2/092824)?|github\.com/xinghaochen/TinySAM/.*|"
    addresses += r"huggingface\.co/(lkeab/hq-sam|mit-han-lab/efficientvit-sam)/resolve/main|"
    addresses += r"raw\.githubusercontent\.com/facebookresearch/EdgeTAM/[0-9a-f]{40}/checkpoints)/[\w.]+\.pth?"
    for file in PUBLISHED.values():
        assert re.fullmatch(addresses, file.url)
        assert re.fullmatch("([0-9a-f]{64})?", file.sha256)
    # They share a folder.
    assert len({file.name for file in (OFFICIAL, *PUBLISHED.values())}) == len(PUBLISHED) + 1


def test_documentation_and_help_name_every_word(capsys, run):
    words = re.findall(
        r"^\| `(\S+)` \|",
        (ROOT / "docs/weights.md").read_text().partition("## Time")[0],
        re.MULTILINE,
    )
    assert words == list(PUBLISHED)
    with pytest.raises(SystemExit):
        run("--help")
    assert set(PUBLISHED) <= set(re.split(r"[\s,]+", capsys.readouterr().out))
