"""Conversion of checkpoints of the SAM family to ONNX, without PyTorch.

state = checkpoint.load_checkpoint("mobile_sam.pt")
descriptor, (encoder, decoder) = model.build(state)

Only names that need no ONNX are here, so that a check of an export that is up to date takes no
time.
"""

from sam_onnx.errors import CheckpointError, DownloadError, ExportError, SamOnnxError
from sam_onnx.weights import Preparer

__version__ = "0.1.0"
__all__ = ["CheckpointError", "DownloadError", "ExportError", "Preparer", "SamOnnxError"]
