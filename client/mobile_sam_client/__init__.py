"""Python client of the MobileSAM service.

from mobile_sam_client import Client

with Client() as client:
    found = client.segment("photo.jpg", pos_coords=(320, 240))
    found.mask  # (H, W) bool
"""

from mobile_sam_client._client import AsyncClient, Client
from mobile_sam_client._errors import (
    BodyTooLarge,
    FieldError,
    ImageNotCached,
    InvalidImage,
    InvalidRequest,
    MobileSamError,
    NotThisService,
    Problem,
    ServiceTimeout,
    ServiceUnreachable,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from mobile_sam_client._images import ImageInput
from mobile_sam_client._options import EverythingOptions, MaskOptions
from mobile_sam_client._pictures import Rle
from mobile_sam_client._prompts import Prompt
from mobile_sam_client._results import Embedding, Engine, Everything, Info, Loaded, Record, Segmentation, Weights

__all__ = [
    "AsyncClient",
    "BodyTooLarge",
    "Client",
    "Embedding",
    "Engine",
    "Everything",
    "EverythingOptions",
    "FieldError",
    "ImageInput",
    "ImageNotCached",
    "Info",
    "InvalidImage",
    "InvalidRequest",
    "Loaded",
    "MaskOptions",
    "MobileSamError",
    "NotThisService",
    "Problem",
    "Prompt",
    "Record",
    "Rle",
    "Segmentation",
    "ServiceTimeout",
    "ServiceUnreachable",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "Weights",
]
