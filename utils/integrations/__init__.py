"""Interfaces in the languages of annotation tools."""

from __future__ import annotations

from collections.abc import Collection

from utils.integrations.adapter import Adapter
from utils.integrations.label_studio import LABEL_STUDIO

ADAPTERS: tuple[Adapter, ...] = (LABEL_STUDIO,)
"""All adapters; `utils.settings.INTEGRATIONS` has their names."""


def chosen(names: Collection[str]) -> list[Adapter]:
    """Return adapters by their names."""
    return [adapter for adapter in ADAPTERS if adapter.name in names]
