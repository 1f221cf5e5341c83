"""The objects of the overlays in deploy/kubernetes, and helpers to look them up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.deploy.kustomize import Object, build

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = {name: build(KUBERNETES / "overlays" / name) for name in ("cpu", "gpu", "example")}

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def named(overlay: str, kind: str, name: str = "mobile-sam") -> Object:
    (found,) = (obj for obj in OVERLAYS[overlay] if (obj["kind"], obj["metadata"]["name"]) == (kind, name))
    return found


def pod(overlay: str, name: str = "mobile-sam") -> Object:
    spec: Object = named(overlay, "Deployment", name)["spec"]["template"]["spec"]
    return spec


def container(overlay: str, name: str = "mobile-sam") -> Object:
    only: Object
    (only,) = pod(overlay, name)["containers"]
    return only
