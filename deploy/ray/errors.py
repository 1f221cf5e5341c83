"""The error of a batch."""


class BatchError(Exception):
    """A batch cannot start or go on; the message is one line."""
