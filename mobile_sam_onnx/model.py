"""Export of ONNX models to a Triton model repository: MobileSAM with the weights of a file, or the built-in networks.

The built-in networks have MobileSAM's inputs and outputs.
"""

import lzma
import os
from collections.abc import Sequence
from pathlib import Path

import onnx

from mobile_sam_onnx.decoder import build_decoder_graph
from mobile_sam_onnx.encoder import build_encoder_graph
from mobile_sam_onnx.errors import ExportError
from mobile_sam_onnx.identity import BUILDER_VERSION, Identity, VersionFolders, record_text
from mobile_sam_onnx.sources import BUILTIN
from mobile_sam_onnx.tensors import StateDict

IR_VERSION = 9  # the one of opset 20; ONNX Runtime 1.19 reads up to 10


def build_encoder(state: StateDict) -> onnx.ModelProto:
    """Build the image encoder; inputs and outputs as in `encoder.build_encoder_graph`.

    Raises:
        CheckpointError: a tensor is missing or does not fit.
    """
    return finish(build_encoder_graph(state), "mobile_sam_encoder")


def build_decoder(state: StateDict) -> onnx.ModelProto:
    """Build the prompt encoder and mask decoder; inputs and outputs as in `decoder.build_decoder_graph`.

    Raises:
        CheckpointError: a tensor is missing or does not fit.
    """
    return finish(build_decoder_graph(state), "mobile_sam_decoder")


def build(state: StateDict) -> list[onnx.ModelProto]:
    """Build the encoder and the decoder.

    Raises:
        CheckpointError: a tensor is missing or does not fit.
    """
    return [build_encoder(state), build_decoder(state)]


def builtin() -> list[onnx.ModelProto]:
    """Read the built-in encoder and decoder."""
    return [onnx.load_model_from_string(lzma.decompress(path.read_bytes())) for path in BUILTIN]


def export(networks: Sequence[onnx.ModelProto], folders: VersionFolders, identity: Identity, source: str) -> None:
    """Write an encoder, a decoder and `weights.json`, and copy the code if this version has none.

    Each file is replaced atomically, and `weights.json` is absent while the files do not match. `source` is the
    id of the weights in the fingerprint.

    Raises:
        ExportError: a file cannot be written.
    """
    models = dict(zip((folders.encoder, folders.decoder), networks, strict=True))
    properties = {
        "weights_name": identity.name,
        "weights_sha256": identity.sha256,
        "weights_trained": str(identity.trained).lower(),
        "weights_note": identity.note,
    }
    for model in models.values():
        onnx.helper.set_model_props(model, properties)
    record = record_text(identity, source)
    try:
        for path in folders.records:
            path.unlink(missing_ok=True)
        for path, model in models.items():
            replace_file(path, model.SerializeToString())
        for path in folders.records:
            path.parent.mkdir(parents=True, exist_ok=True)
        folders.copy_code()
        for path in folders.records:
            replace_file(path, record.encode())
    except OSError as error:
        where = error.filename or folders.repository
        raise ExportError(f"cannot write to {where}: {error.strerror or error}") from error


def finish(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Set the model's name and an IR version that older runtimes read, and check the model."""
    model.ir_version = IR_VERSION
    model.graph.name = name
    model.producer_name, model.producer_version = "mobile_sam_onnx", BUILDER_VERSION
    onnx.checker.check_model(model, full_check=True)
    return model


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; makes its folder if necessary.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
