"""Preparation of a model repository with the chosen weights; an export that is up to date is not repeated.

What needs ONNX is imported only for an export: that takes a second.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sam_onnx.descriptor import RECIPES
from sam_onnx.errors import CheckpointError, DownloadError
from sam_onnx.repository import Identity, Version, sha256_of
from sam_onnx.sources import BUILTIN, OFFICIAL, OFFICIAL_PACKAGE, SAM, Package, WebFile

if TYPE_CHECKING:
    from sam_onnx.model import Networks

RANDOM_SOURCE = "random:0"
BUILTIN_NOTE = (
    "The built-in weights: a small segmenter trained on generated scenes; "
    "the official MobileSAM weights segment better."
)
RANDOM_NOTE = "Untrained random weights: answers have the right form, but the masks are meaningless."
BUILTIN_THRESHOLDS = {"pred_iou_thresh": 0.6, "stability_score_thresh": 0.8}
"""Lower than MobileSAM's, as the scores are lower and the edges softer."""
_PUBLISHED = {
    "official": Identity(
        "official", OFFICIAL.sha256, trained=True, note="The official MobileSAM checkpoint, mobile_sam.pt."
    ),
    **{
        word: Identity(word, file.sha256, trained=True, note=f"Segment Anything's checkpoint {file.name}.")
        for word, file in SAM.items()
    },
}
"""Identities of published files, by the word that chooses them."""


class Preparer:
    """Exporter of weights to one version of a repository's models; reports each step in a line."""

    def __init__(self, repository: Path, report: Callable[[str], None], *, version: int = 1) -> None:
        self._version = Version(repository, version)
        self._report = report

    def prepare(self, choice: str) -> Identity:
        """Export `choice`: `auto`, `official`, `builtin`, `random`, a word of `SAM`, or the path of a weights file.

        `auto` is `official` if those weights are exported, cached or can be fetched, otherwise `builtin`.

        Raises:
            SamOnnxError: the weights cannot be fetched or read, or the export cannot be written.
        """
        named = {"auto": self._auto, "official": self._official, "builtin": self._builtin, "random": self._random}
        if choice in SAM:
            return self._published(choice, SAM[choice], None)
        return named[choice]() if choice in named else self.from_file(Path(choice))

    def from_file(self, path: Path) -> Identity:
        """Export the weights in a file.

        The path may follow a word of `RECIPES` and a colon.

        Raises:
            SamOnnxError: the file cannot be read, or the export cannot be written.
        """
        recipe, colon, rest = str(path).partition(":")
        recipe, path = (recipe, Path(rest)) if colon and recipe in RECIPES else ("", path)
        try:
            digest = sha256_of(path)
        except OSError as error:
            raise CheckpointError(f"cannot read the weights file {path}: {error.strerror or error}") from error
        identity = Identity(path.name, digest, trained=True, note=f"Weights from the file {path.name}.")
        identity = next((known for known in _PUBLISHED.values() if known.sha256 == digest), identity)
        return self._export(identity, f"{recipe}:{digest}" if recipe else digest, lambda: _built(path, recipe))

    def _auto(self) -> Identity:
        try:
            return self._official()
        except DownloadError as error:
            self._report(f"warning: {error}")
            self._report("warning: using the built-in weights instead, which segment less well")
            return self._builtin()

    def _official(self) -> Identity:
        return self._published("official", OFFICIAL, OFFICIAL_PACKAGE)

    def _published(self, word: str, file: WebFile, package: Package | None) -> Identity:
        if done := self._current(file.sha256):
            return done
        from sam_onnx.download import fetch  # noqa: PLC0415

        path = fetch(file, package, self._report)
        return self._export(_PUBLISHED[word], file.sha256, lambda: _built(path))

    def _builtin(self) -> Identity:
        def load() -> Networks:
            from sam_onnx import model  # noqa: PLC0415

            return model.builtin()

        digest = sha256_of(*BUILTIN)
        identity = Identity("builtin", digest, trained=True, note=BUILTIN_NOTE, everything=BUILTIN_THRESHOLDS)
        return self._export(identity, digest, load)

    def _random(self) -> Identity:
        if done := self._current(RANDOM_SOURCE):
            return done
        from sam_onnx import model, random_weights  # noqa: PLC0415

        state = random_weights.random_state(random_weights.mobile_sam_shapes())
        digest = hashlib.sha256()
        for key, value in sorted(state.items()):
            digest.update(key.encode() + value.tobytes())
        identity = Identity("random", digest.hexdigest(), trained=False, note=RANDOM_NOTE)
        return self._export(identity, RANDOM_SOURCE, lambda: model.build(state))

    def _current(self, source: str, name: str | None = None) -> Identity | None:
        """Return the identity of the export in the repository if it matches `source` (and `name`)."""
        done = self._version.identity(source)
        if done is None or name not in (None, done.name):  # same file, other name
            return None
        self._version.copy_code()
        self._report(f"{self._version} is up to date with {done.name} weights")
        return done

    def _export(self, identity: Identity, source: str, load: Callable[[], Networks]) -> Identity:
        if done := self._current(source, identity.name):
            return done
        started = time.monotonic()
        descriptor, models = load()
        identity, before = replace(identity, descriptor=descriptor), self._version.exported_name()
        self._version.write(models, identity, source)
        what = f"{identity.name} weights to {self._version}"
        what += f", in place of {before}" if before not in ("", identity.name) else ""
        self._report(f"export: {time.monotonic() - started:.0f} s ({what})")
        if not self._version.has_code():
            self._report(
                f"note: Triton also needs the code of the other models, which {self._version.repository} lacks; "
                "copy the project's model_repository there first"
            )
        return identity


def _built(path: Path, recipe: str = "") -> Networks:
    from sam_onnx import checkpoint, model  # noqa: PLC0415

    return model.build(checkpoint.load_checkpoint(path), recipe)
