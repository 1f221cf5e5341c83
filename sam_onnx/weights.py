"""Preparation of a model repository with the chosen weights; an export that is up to date is not
repeated.

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

from sam_onnx.descriptor import RECIPES, SAM2_KINDS
from sam_onnx.errors import CheckpointError, DownloadError
from sam_onnx.repository import Identity, Version, sha256_of
from sam_onnx.sources import (
    BUILTIN,
    OFFICIAL,
    OFFICIAL_PACKAGE,
    PUBLISHED,
    UNSERVED,
    Package,
    WebFile,
)

if TYPE_CHECKING:
    from sam_onnx.model import Networks

RANDOM_SOURCE = "random:0"
BUILTIN_NOTE = (
    "The built-in weights: a small segmenter trained on generated scenes; "
    "the official MobileSAM weights segment better."
)
RANDOM_NOTE = (
    "Untrained random weights: answers have the right form, but the masks are meaningless."
)
BUILTIN_THRESHOLDS = {"pred_iou_thresh": 0.6, "stability_score_thresh": 0.8}
"""Lower than MobileSAM's, as the scores are lower and the edges softer."""
SAM2_THRESHOLDS = {"pred_iou_thresh": 0.8, "stability_score_thresh": 0.95}
"""Defaults of SAM 2's own generator of masks."""
HUB = "hf:"
"""Beginning of the name of a model on the Hugging Face Hub."""


class Preparer:
    """Exporter of weights to one version of a repository's models; reports each step in a line."""

    def __init__(
        self, repository: Path, report: Callable[[str], None], *, version: int = 1
    ) -> None:
        self._version = Version(repository, version)
        self._report = report

    def prepare(self, choice: str) -> Identity:
        """Export `choice`.

        It is `auto`, `official` (or `mobile_sam`), `builtin`, `random`, a word of `PUBLISHED` with
        or without `@` and a SHA-256, `hf:owner/name` with or without `@` and a revision, or the
        path of a weights file. A word of `RECIPES` and a colon may precede the last three. `auto`
        is `official` if those weights are exported, cached or can be fetched, otherwise `builtin`.

        Raises:
            SamOnnxError: the weights cannot be fetched or read, or the export cannot be written.
        """
        named = {
            "auto": self._auto,
            "official": self._official,
            "builtin": self._builtin,
            "random": self._random,
        }
        named["mobile_sam"] = self._official
        if choice in named:
            return named[choice]()
        recipe, source = _split(choice)
        if reason := UNSERVED.get(source.lower()):
            raise CheckpointError(f"{source} is not served: {reason}")
        word, pinned, sha256 = source.partition("@")
        if word in PUBLISHED:
            return self._word(word, sha256 if pinned else None, recipe or _recipe_of(word))
        if source.startswith(HUB):
            return self._from_hub(source.removeprefix(HUB), recipe)
        return self._from_file(source, recipe)

    def _from_file(self, file: str, recipe: str) -> Identity:
        path = Path(file)
        if not file:
            raise CheckpointError(f"expected a path, a word or hf: after {recipe}:, got nothing")
        try:
            digest = sha256_of(path)
        except OSError as error:
            reason = f"{error.strerror or error}{_hint(file)}"
            raise CheckpointError(f"cannot read the weights file {file}: {reason}") from error
        published = {"official": OFFICIAL, **PUBLISHED}
        words = [
            word
            for word, source in published.items()
            if source.sha256 == digest and _recipe_of(word) == recipe
        ]
        known = _identity(words[0], published[words[0]], recipe) if words else None
        identity = known or _identified(
            path.name, digest, f"Weights from the file {path.name}.", recipe
        )
        return self._export(identity, identity.sha256, lambda: _built(path, digest, recipe))

    def _from_hub(self, address: str, recipe: str) -> Identity:
        from sam_onnx.hub import fetch_from_hub  # noqa: PLC0415

        name, _, revision = address.partition("@")
        path, commit = fetch_from_hub(name, revision or "main")
        self._report(f"weights: {HUB}{name}@{commit}")
        note = f"Weights of {name} on the Hugging Face Hub, revision {commit}."
        digest = sha256_of(path)
        identity = _identified(name, digest, note, recipe)
        return self._export(identity, identity.sha256, lambda: _built(path, digest, recipe))

    def _auto(self) -> Identity:
        try:
            return self._official()
        except DownloadError as error:
            self._report(f"warning: {error}")
            self._report("warning: using the built-in weights instead, which segment less well")
            return self._builtin()

    def _official(self) -> Identity:
        return self._published("official", OFFICIAL, OFFICIAL_PACKAGE)

    def _word(self, word: str, sha256: str | None, recipe: str) -> Identity:
        file = PUBLISHED[word]
        if sha256 is not None:
            if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
                raise DownloadError(
                    f"expected {word}@ and the 64 hex digits of a SHA-256, got {sha256!r}"
                )
            file = replace(file, sha256=sha256.lower())
        try:
            return self._published(word, file, None, recipe)
        except DownloadError as error:
            raise DownloadError(f"{word}: {error}") from error

    def _published(
        self, word: str, file: WebFile, package: Package | None, recipe: str = ""
    ) -> Identity:
        if file.sha256 and (done := self._current(_id_of(file.sha256, recipe))):
            return done
        from sam_onnx.download import fetch  # noqa: PLC0415

        path = fetch(file, package, self._report, copy=f"{recipe}:path" if recipe else "path")
        pinned, digest = bool(file.sha256), sha256_of(path)
        file = replace(file, sha256=file.sha256 or digest)
        identity = _identity(word, file, recipe)
        try:
            exported = self._export(identity, identity.sha256, lambda: _built(path, digest, recipe))
        except CheckpointError as error:
            hint = "" if pinned else f"; remove {path} to download it again"
            raise CheckpointError(f"{error}{hint}") from error
        if not pinned:
            self._report(
                f"note: no SHA-256 of {file.name} is known; WEIGHTS={word}@{file.sha256} accepts"
                " only this one"
            )
        return exported

    def _builtin(self) -> Identity:
        def load() -> Networks:
            from sam_onnx import model  # noqa: PLC0415

            return model.builtin()

        digest = sha256_of(*BUILTIN)
        identity = Identity(
            "builtin", digest, trained=True, note=BUILTIN_NOTE, everything=BUILTIN_THRESHOLDS
        )
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
        """Return the identity of the export in the repository if it matches `source` (and
        `name`).
        """
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
        if descriptor.architecture in SAM2_KINDS:
            identity = replace(identity, everything=SAM2_THRESHOLDS)
        self._version.write(models, identity, source)
        what = f"{identity.name} weights to {self._version}"
        what += f", in place of {before}" if before not in ("", identity.name) else ""
        self._report(f"export: {time.monotonic() - started:.0f} s ({what})")
        if not self._version.has_code():
            self._report(
                "note: Triton also needs the code of the other models, which"
                f" {self._version.repository} lacks; copy the project's model_repository there"
                " first"
            )
        return identity


def _split(choice: str) -> tuple[str, str]:
    """Return the recipe in front of a colon, which may be empty, and the rest."""
    recipe, colon, rest = choice.partition(":")
    return (recipe, rest) if colon and recipe in RECIPES else ("", choice)


def _recipe_of(word: str) -> str:
    """Return the recipe of a published file, which may be empty."""
    return word if word in RECIPES else ""


def _id_of(digest: str, recipe: str) -> str:
    """Return the id of weights by the SHA-256 of their file: with a recipe, the same file
    answers other masks.
    """
    return hashlib.sha256(f"{recipe}:{digest}".encode()).hexdigest() if recipe else digest


def _identified(name: str, digest: str, note: str, recipe: str) -> Identity:
    full = name if recipe in ("", name) else f"{recipe}:{name}"
    return Identity(full, _id_of(digest, recipe), trained=True, note=note)


def _identity(word: str, file: WebFile, recipe: str = "") -> Identity:
    return _identified(word, file.sha256, f"The authors' checkpoint, {file.name}.", recipe)


def _hint(given: str) -> str:
    """Return a remark with the word that was probably meant, or an empty string."""
    words = {
        word.lower(): word
        for word in (
            "official",
            "builtin",
            *PUBLISHED,
            *UNSERVED,
            *(f"{recipe}:" for recipe in RECIPES),
        )
    }
    start, colon, _ = given.lower().partition(":")
    similar = get_close_matches(start + colon, words, 1)
    return f"; did you mean {words[similar[0]]}?" if similar else ""


def _built(path: Path, digest: str, recipe: str) -> Networks:
    """Return the networks of a weights file, which has the SHA-256 `digest` before and after it
    is read.
    """
    from sam_onnx import checkpoint, model  # noqa: PLC0415

    networks = model.build(checkpoint.load_checkpoint(path), recipe)
    try:
        unchanged = sha256_of(path) == digest
    except OSError:
        unchanged = False
    if not unchanged:
        raise CheckpointError(
            f"the weights file {path} changed while it was read; run the command again"
        )
    return networks
