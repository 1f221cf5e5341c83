"""Models in a Triton model repository, and the record of their weights, `weights.json`, beside the
orchestrator's code.

No heavy imports.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sam_onnx.descriptor import Descriptor, check_same_tensors, configured
from sam_onnx.errors import ExportError
from sam_onnx.files import open_regular

if TYPE_CHECKING:
    from onnx import ModelProto

# Increase with every change of the graphs or the record, so that older exports are replaced
BUILDER_VERSION = "11"
ORCHESTRATORS = ("mobile_sam_everything", "mobile_sam_costly", "mobile_sam_cached", "mobile_sam")
"""Models that read the record; `mobile_sam` is written last, when everything else is complete."""
MODEL_FILE, GPU_FILE = "model.onnx", "gpu.onnx"
"""Each network's files: the graph, and the same with the work on pixels, which GPUs run."""
CONFIGS = ("config.pbtxt", "configs/gpu.pbtxt")
"""Configurations of a network for the two."""
MAX_INLINE_BYTES = 2**30
ALIGNMENT_BYTES = 2**12  # pages, so that an engine can map the weights
SAM_THRESHOLDS = {"pred_iou_thresh": 0.88, "stability_score_thresh": 0.95}


@dataclass(frozen=True)
class Identity:
    """Origin of a set of weights."""

    name: str
    """`official`, `random`, or the name of a file."""
    sha256: str
    """SHA-256 of the weights' files in hex; of the tensors if there is no file."""
    trained: bool
    """False for random values."""
    note: str
    """Description in one sentence."""
    descriptor: Descriptor = field(default_factory=Descriptor)
    everything: dict[str, float] = field(default_factory=lambda: dict(SAM_THRESHOLDS))
    """Default thresholds of automatic masks; Segment Anything's unless set."""


@dataclass(frozen=True)
class Version:
    """One version of the models in a repository: a folder in each model's folder."""

    repository: Path
    number: int = 1

    def __str__(self) -> str:
        return str(self.repository) + (f" (version {self.number})" if self.number > 1 else "")

    def identity(self, source: str) -> Identity | None:
        """Return the identity of a complete export of `source`, the id of the weights; None if
        there is none.
        """
        networks, records = self._files()
        gpu_networks = [path.with_name(GPU_FILE) for path in networks]
        if not all(path.is_file() for path in (*networks, *gpu_networks, *records)):
            return None
        try:
            record = json.loads(records[-1].read_text(encoding="utf-8"))
            complete = all((self.repository / file).is_file() for file in record.pop("data"))
            record.pop("networks")
            record["descriptor"] = Descriptor(**record["descriptor"])
            return (
                Identity(**record)
                if record.pop("fingerprint") == _fingerprint(source) and complete
                else None
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def exported_name(self) -> str:
        """Return the name of the weights in the repository, or an empty string."""
        try:
            return str(json.loads(self._files()[1][-1].read_text(encoding="utf-8"))["name"])
        except (OSError, ValueError, TypeError, KeyError):
            return ""

    def write(self, models: Sequence[ModelProto], identity: Identity, source: str) -> None:
        """Write an encoder, a decoder and `weights.json`, and copy the code if this version has
        none. Beside each network, write the one that GPUs run.

        Each file is replaced atomically, and `weights.json` is absent while the files do not match.
        It has the SHA-256 of each, so that a service finds one that was put there later. `source`
        is the id of the weights. The weights of a large network are written to a file beside it,
        and removed from the model.

        Raises:
            ExportError: a file cannot be written, or another version's tensors have other shapes.
        """
        from onnx.helper import set_model_props  # noqa: PLC0415

        from sam_onnx.pixels import with_pixels  # noqa: PLC0415

        check_same_tensors(identity.descriptor, self._others())
        networks, records = self._files()
        properties = {
            "weights_name": identity.name,
            "weights_sha256": identity.sha256,
            "weights_trained": str(identity.trained).lower(),
            "weights_note": identity.note,
        }
        record: dict[str, Any] = {
            **asdict(identity),
            "fingerprint": _fingerprint(source),
            "data": [],
            "networks": {},
        }
        with _writing(self.repository), _locked(self.repository):
            for path in records:
                path.unlink(missing_ok=True)
            for path, model in zip(networks, models, strict=True):
                set_model_props(model, properties)
                gpu_path = path.with_name(GPU_FILE)
                files = [path, gpu_path]
                if data := _write_network(path, model):
                    record["data"].append(str(data.relative_to(self.repository)))
                    files.append(data)
                gpu_model = with_pixels(model, identity.descriptor.resize)
                replace_file(gpu_path, gpu_model.SerializeToString())
                for file in files:
                    record["networks"][f"{path.parent.parent.name}/{file.name}"] = sha256_of(file)
            self._complete(identity.descriptor)
            for path in records:
                replace_file(path, (json.dumps(record, indent=2) + "\n").encode())

    def complete(self, descriptor: Descriptor) -> None:
        """Write the networks' configuration for the descriptors of all versions, and copy code from
        another version.

        The code is what Triton loads of the orchestrator's models, `model.py`, from the newest
        other version.

        Raises:
            ExportError: a file cannot be written.
        """
        with _writing(self.repository), _locked(self.repository):
            self._complete(descriptor)

    def _complete(self, descriptor: Descriptor) -> None:
        batch = min(version.batch for version in (descriptor, *self._others().values()))
        with _writing(self.repository):
            networks = self._files()[0]
            for network, config in product(networks, CONFIGS):
                path = network.parent.parent / config
                text = path.read_text(encoding="utf-8") if path.is_file() else ""
                if text and (new := configured(text, replace(descriptor, batch=batch))) != text:
                    replace_file(path, new.encode())
            for model in ORCHESTRATORS:
                others = [
                    int(path.parent.name) for path in (self.repository / model).glob("[1-9]*/*.py")
                ]
                others = [number for number in others if number != self.number]
                for path in (
                    (self.repository / model / str(max(others))).glob("*.py") if others else ()
                ):
                    copy = self._folder(model) / path.name
                    if not copy.is_file():
                        replace_file(copy, path.read_bytes())

    def has_code(self) -> bool:
        """Return whether the orchestrator's code exists, without which Triton cannot serve the
        networks.
        """
        return all(any(self._folder(model).glob("*.py")) for model in ORCHESTRATORS)

    def _others(self) -> dict[int, Descriptor]:
        """Return the descriptors of the other versions, by number."""
        descriptors = {}
        for path in (self.repository / ORCHESTRATORS[-1]).glob("[1-9]*/weights.json"):
            with suppress(OSError, ValueError, TypeError, KeyError):
                descriptors[int(path.parent.name)] = Descriptor(
                    **json.loads(path.read_text(encoding="utf-8"))["descriptor"]
                )
        descriptors.pop(self.number, None)
        return descriptors

    def _files(self) -> tuple[list[Path], list[Path]]:
        """Return the paths of the encoder and the decoder, and of the records."""
        networks = [
            self._folder(f"mobile_sam_{network}") / MODEL_FILE for network in ("encoder", "decoder")
        ]
        return networks, [self._folder(model) / "weights.json" for model in ORCHESTRATORS]

    def _folder(self, model: str) -> Path:
        return self.repository / model / str(self.number)


def _fingerprint(source: str) -> str:
    """Return the id of an export, which depends on this builder and on `source`."""
    return hashlib.sha256(f"{BUILDER_VERSION}:{source}".encode()).hexdigest()


def sha256_of(*paths: Path) -> str:
    """Return the SHA-256 of a file, or of several in this order, in hex.

    Raises:
        OSError: a file cannot be read, or is no regular one.
    """
    digest = hashlib.sha256()
    for path in paths:
        with open_regular(path) as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    return digest.hexdigest()


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; makes its folder if necessary.

    Raises:
        OSError: the file cannot be written.
    """
    with _replacing(path) as temporary:
        temporary.write_bytes(content)


def _write_network(path: Path, model: ModelProto) -> Path | None:
    """Write a model, and more than `MAX_INLINE_BYTES` of weights to a file of ONNX external data,
    which is returned.

    A protobuf is smaller than 2 GiB.
    """
    data = path.with_name(f"{path.name}.data")
    weights = model.graph.initializer
    if sum(len(weight.raw_data) for weight in weights) > MAX_INLINE_BYTES:
        from onnx.external_data_helper import set_external_data  # noqa: PLC0415

        with _replacing(data) as temporary, temporary.open("wb") as file:
            for weight in weights:
                file.seek(-file.tell() % ALIGNMENT_BYTES, os.SEEK_CUR)
                set_external_data(weight, data.name, file.tell(), len(weight.raw_data))
                file.write(weight.raw_data)
                weight.ClearField("raw_data")
        replace_file(path, model.SerializeToString())
        return data
    replace_file(path, model.SerializeToString())
    data.unlink(missing_ok=True)  # of the weights before
    return None


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Return a path to write, which replaces the file at the end; makes its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _locked(repository: Path) -> Iterator[None]:
    """Keep other exports from writing to a repository, and services from taking a snapshot of it
    meanwhile.
    """
    import fcntl  # noqa: PLC0415 - Windows has none, and gets a message

    repository.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a network file system without locks of folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _writing(repository: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or repository
        raise ExportError(f"cannot write to {where}: {error.strerror or error}") from error
