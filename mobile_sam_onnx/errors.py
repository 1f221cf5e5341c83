"""Errors of this package.

MobileSamOnnxError
 ├─ CheckpointError   the weights file is missing, damaged, unsafe or not a MobileSAM
 ├─ DownloadError     the official weights cannot be fetched, or do not match their checksum
 └─ ExportError       the model repository cannot be written
"""


class MobileSamOnnxError(Exception):
    """Base of all errors of this package; the message is one line."""


class CheckpointError(MobileSamOnnxError):
    """The weights file is missing, damaged, unsafe or not a MobileSAM."""


class DownloadError(MobileSamOnnxError):
    """The official weights cannot be fetched, or do not match their checksum."""


class ExportError(MobileSamOnnxError):
    """The model repository cannot be written."""
