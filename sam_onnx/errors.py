"""Errors of this package.

SamOnnxError
 ├─ CheckpointError   the weights file is missing, damaged, unsafe or not of the SAM family
 ├─ DownloadError     weights cannot be fetched, or do not match their checksum
 └─ ExportError       the model repository cannot be written
"""

from sam_onnx.texts import MAX_LINE_CHARACTERS, shown


class SamOnnxError(Exception):
    """Base of all errors of this package; the message is one printable line, whatever a file's
    names are.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shown(message, MAX_LINE_CHARACTERS))


class CheckpointError(SamOnnxError):
    """The weights file is missing, damaged, unsafe or not of the SAM family."""


class DownloadError(SamOnnxError):
    """The weights cannot be fetched, or do not match their checksum."""


class ExportError(SamOnnxError):
    """The model repository cannot be written."""
