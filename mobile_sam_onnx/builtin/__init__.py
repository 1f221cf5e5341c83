"""The built-in model: a small promptable segmenter trained on generated scenes, with the interface of MobileSAM."""

from mobile_sam_onnx.builtin.decoder import build_decoder
from mobile_sam_onnx.builtin.encoder import build_encoder

__all__ = ["build_decoder", "build_encoder"]
