"""Import of the functions for CVAT without its SDK; `tests/integrations` runs them with it."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_error_without_cvat_sdk_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvat_sdk", None)
    with pytest.raises(ImportError, match=r"pip install 'mobile-sam-client\[cvat\]'$"):
        importlib.import_module("mobile_sam_client.cvat")
