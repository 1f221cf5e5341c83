"""Conversion of MobileSAM checkpoints to ONNX, without PyTorch.

state = load_checkpoint("mobile_sam.pt")
onnx.save(build_encoder(state), "encoder.onnx")
onnx.save(build_decoder(state), "decoder.onnx")
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mobile_sam_onnx.checkpoint import load_checkpoint
    from mobile_sam_onnx.errors import CheckpointError, DownloadError, ExportError, MobileSamOnnxError
    from mobile_sam_onnx.identity import Identity
    from mobile_sam_onnx.model import build_decoder, build_encoder, export
    from mobile_sam_onnx.weights import Preparer

__all__ = [
    "CheckpointError",
    "DownloadError",
    "ExportError",
    "Identity",
    "MobileSamOnnxError",
    "Preparer",
    "build_decoder",
    "build_encoder",
    "export",
    "load_checkpoint",
]

_MODULES = {
    "CheckpointError": "errors",
    "DownloadError": "errors",
    "ExportError": "errors",
    "Identity": "identity",
    "MobileSamOnnxError": "errors",
    "Preparer": "weights",
    "build_decoder": "model",
    "build_encoder": "model",
    "export": "model",
    "load_checkpoint": "checkpoint",
}


def __getattr__(name: str) -> object:
    # Imported at first use: checking an export that is up to date needs no ONNX.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
