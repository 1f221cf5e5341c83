"""What this package raises.

MobileSamOnnxError
 ├─ CheckpointError   the weights file cannot be read, or is not a MobileSAM
 ├─ DownloadError     the official weights did not arrive, or arrived altered
 └─ ExportError       the graphs could not be written
"""


class MobileSamOnnxError(Exception):
    """Base of every error of this package; its text is one line: what was expected, what came."""


class CheckpointError(MobileSamOnnxError):
    """The weights file is absent, damaged, unsafe, or does not hold a MobileSAM."""


class DownloadError(MobileSamOnnxError):
    """The official weights could not be fetched, or differ from what was published."""


class ExportError(MobileSamOnnxError):
    """The model repository could not be written."""
