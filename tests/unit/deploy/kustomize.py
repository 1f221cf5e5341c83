"""The subset of kustomize that deploy/kubernetes uses; anything else is an error.

A test compares the result with that of `kubectl kustomize` if kubectl is installed.
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
MERGE_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
"""Lists that a patch merges into, and the key that identifies their entries."""
REPLACED_LISTS = {"tolerations"}
"""Lists that a patch replaces."""
CLUSTER_WIDE = {"Namespace"}


class KustomizeError(Exception):
    """An invalid kustomization, or one that uses unsupported features."""


def build(folder: Path) -> list[Object]:
    """Return the objects of a kustomization, without kustomize's suffixes of generated names.

    Raises:
        KustomizeError: a file or the target of a patch is missing, or a field is not supported.
    """
    return _build(folder.resolve(), [])


def read(file: Path) -> list[Object]:
    """Return the documents of a YAML file."""
    if not file.is_file():
        raise KustomizeError(f"{file} does not exist")
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


def _build(folder: Path, objects: list[Object]) -> list[Object]:
    (kustomization,) = read(folder / "kustomization.yaml")
    unknown = set(kustomization) - FIELDS
    if unknown:
        raise KustomizeError(f"{folder}: unsupported fields: {', '.join(sorted(unknown))}")
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
    for obj in objects:
        if "namespace" in kustomization and obj["kind"] not in CLUSTER_WIDE:
            obj["metadata"]["namespace"] = kustomization["namespace"]
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
        *parents, last = step["path"].strip("/").split("/")
        node: Any = target
        for part in parents:
            node = node[int(part) if isinstance(node, list) else part]
        key = int(last) if isinstance(node, list) else last
        if step["op"] != "replace" or node[key] is None:
            raise KustomizeError(f"{folder}: unsupported patch: {step['op']} {step['path']}")
        node[key] = step["value"]


def _merge(target: Object, change: Object) -> None:
    """Apply a strategic merge patch to an object."""
    for name, value in change.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        elif isinstance(value, list) and value and isinstance(value[0], dict) and name not in REPLACED_LISTS:
            if name not in MERGE_KEYS:
                raise KustomizeError(f"unsupported list in a patch: {name}")
            target[name] = _merged(target.get(name, []), value, MERGE_KEYS[name])
        else:
            target[name] = value


def _merged(entries: list[Object], changes: list[Object], key: str) -> list[Object]:
    """Merge changes into a list; new entries come first, as in kustomize."""
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
        raise KustomizeError(f"no container has the image {image['name']}")


def containers(objects: list[Object]) -> Iterator[Object]:
    """Yield the containers of all Deployments."""
    for obj in objects:
        if obj["kind"] == "Deployment":
            yield from obj["spec"]["template"]["spec"]["containers"]


def _one(objects: list[Object], kind: str, name: str) -> Object:
    found = [obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    if len(found) != 1:
        raise KustomizeError(f"expected one {kind} {name}, got {len(found)}")
    return found[0]
