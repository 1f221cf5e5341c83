"""Python client of the MobileSAM service.

from mobile_sam_client import Client

with Client() as client:
    found = client.segment("photo.jpg", pos_coords=(320, 240))
    found.mask  # (H, W) bool
"""

from mobile_sam_client._arrays import Rle
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
from mobile_sam_client._follow import Followed, Follower
from mobile_sam_client._images import ImageInput
from mobile_sam_client._options import EverythingOptions, MaskOptions
from mobile_sam_client._prompts import Prompt
from mobile_sam_client._results import Embedding, Everything, Record, Segmentation
from mobile_sam_client._service_info import Engine, Info, Loaded, Weights
from mobile_sam_client._settings import DEFAULT_URL, MAX_CONNECTIONS

__all__ = [
    "DEFAULT_URL",
    "MAX_CONNECTIONS",
    "AsyncClient",
    "BodyTooLarge",
    "Client",
    "Embedding",
    "Engine",
    "Everything",
    "EverythingOptions",
    "FieldError",
    "Followed",
    "Follower",
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
