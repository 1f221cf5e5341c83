"""Interfaces in the languages of annotation tools."""

from utils.integrations import cvat, label_studio, roboflow, samapi, x_anylabeling
from utils.integrations.adapter import Adapter

ADAPTERS: tuple[Adapter, ...] = (
    x_anylabeling.ADAPTER,
    roboflow.ADAPTER,
    cvat.ADAPTER,
    samapi.ADAPTER,
    label_studio.ADAPTER,
)
"""All adapters; `utils.settings.INTEGRATIONS` has their names."""
