"""What `kubectl apply -k` would send to a cluster: as much of kustomize as deploy/kubernetes uses, errors for the rest.

A test compares it with kubectl's own answer where there is a kubectl.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

FIELDS = {
    "apiVersion",
    "kind",
    "namespace",
    "resources",
    "components",
    "patches",
    "images",
    "configMapGenerator",
}
MERGED_BY = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
"""Lists of objects that a patch adds to or changes, by what tells their entries apart."""
REPLACED = {"tolerations"}
"""Lists of objects that a patch replaces."""
CLUSTER_WIDE = {"Namespace"}


class CannotBuild(Exception):
    """A kustomization that kustomize would refuse, or one that asks for more than is done here."""


def build(folder: Path) -> list[Object]:
    """The objects of a kustomization, without the suffix that kustomize gives to generated names.

    Raises:
        CannotBuild: a file or a patch's target is not there, or a field is none of those known here.
    """
    return _build(folder.resolve(), [])


def read(file: Path) -> list[Object]:
    """The documents of a YAML file."""
    if not file.is_file():
        raise CannotBuild(f"{file} is not there")
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


def _build(folder: Path, objects: list[Object]) -> list[Object]:
    (kustomization,) = read(folder / "kustomization.yaml")
    unknown = set(kustomization) - FIELDS
    if unknown:
        raise CannotBuild(f"{folder}: nothing is known here of {', '.join(sorted(unknown))}")
    objects = list(objects)
    for name in kustomization.get("resources", []):
        path = folder / name
        objects += _build(path, []) if path.is_dir() else read(path)
    for generator in kustomization.get("configMapGenerator", []):
        _generate(folder, generator, objects)
    for name in kustomization.get("components", []):
        objects = _build(folder / name, objects)
    for patch in kustomization.get("patches", []):
        _patch(folder, patch, objects)
    for image in kustomization.get("images", []):
        _set_image(image, objects)
    for made in objects:
        if "namespace" in kustomization and made["kind"] not in CLUSTER_WIDE:
            made["metadata"]["namespace"] = kustomization["namespace"]
    return objects


def _generate(folder: Path, generator: Object, objects: list[Object]) -> None:
    lines = list(generator.get("literals", []))
    for name in generator.get("envs", []):
        lines += [line for line in (folder / name).read_text().splitlines() if line and not line.startswith("#")]
    data = dict(line.split("=", 1) for line in lines)
    if generator.get("behavior") == "merge":
        _one(objects, "ConfigMap", generator["name"])["data"].update(data)
    else:
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data})


def _patch(folder: Path, patch: Object, objects: list[Object]) -> None:
    if "path" in patch:
        for change in read(folder / patch["path"]):
            _merge(_one(objects, change["kind"], change["metadata"]["name"]), change)
        return
    target = _one(objects, patch["target"]["kind"], patch["target"]["name"])
    for step in yaml.safe_load(patch["patch"]):
        *way, last = step["path"].strip("/").split("/")
        place: Any = target
        for part in way:
            place = place[int(part) if isinstance(place, list) else part]
        key = int(last) if isinstance(place, list) else last
        if step["op"] != "replace" or place[key] is None:
            raise CannotBuild(f"{folder}: nothing is known here of {step['op']} {step['path']}")
        place[key] = step["value"]


def _merge(target: Object, change: Object) -> None:
    """Change an object as a strategic merge does."""
    for name, value in change.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        elif isinstance(value, list) and value and isinstance(value[0], dict) and name not in REPLACED:
            if name not in MERGED_BY:
                raise CannotBuild(f"nothing is known here of how a patch changes {name}")
            target[name] = _merged(target.get(name, []), value, MERGED_BY[name])
        else:
            target[name] = value


def _merged(entries: list[Object], changes: list[Object], key: str) -> list[Object]:
    """What is new comes first, as in kustomize's answer."""
    known = {entry[key]: entry for entry in entries}
    for change in changes:
        if change[key] in known:
            _merge(known[change[key]], change)
    return [change for change in changes if change[key] not in known] + entries


def _set_image(image: Object, objects: list[Object]) -> None:
    found = False
    for container in containers(objects):
        name, _, tag = container.get("image", "").partition(":")
        if name == image["name"]:
            found = True
            container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"
    if not found:
        raise CannotBuild(f"no container has the image {image['name']}")


def containers(objects: list[Object]) -> Iterator[Object]:
    """The containers of all Deployments."""
    for made in objects:
        if made["kind"] == "Deployment":
            yield from made["spec"]["template"]["spec"]["containers"]


def _one(objects: list[Object], kind: str, name: str) -> Object:
    found = [made for made in objects if (made["kind"], made["metadata"]["name"]) == (kind, name)]
    if len(found) != 1:
        raise CannotBuild(f"expected one {kind} {name}, got {len(found)}")
    return found[0]
