"""The images in a data set's folder, and which of them a path in a label file means.

Nothing outside of the folder is found, because only the files in it are compared.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath

from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._pictures import FORMATS

ABSOLUTE = re.compile(r"/|[a-zA-Z]:|[a-zA-Z][a-zA-Z0-9+.-]*://")
"""How paths of other machines and addresses begin."""
MAX_LISTED = 3
"""Images that a message lists."""


class ImagePaths:
    """The images by their paths.

    images = ImagePaths(["images/a.png", "labels/a.txt"])
    images.find("a.png", beside="images/boxes.json")  # "images/a.png"
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Take the images among the files of a folder."""
        self._by_path: dict[str, list[str]] = defaultdict(list)
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        """Images by path without suffix."""
        self._by_ending: dict[str, list[str]] = defaultdict(list)
        """Images by each ending of their paths, from the file name to the whole path."""
        self._by_name_stem: dict[str, list[str]] = defaultdict(list)
        """Images by file name without suffix."""
        for name in names:
            if is_image(name):
                path = PurePosixPath(_normal(name))
                self._by_path[str(path)].append(name)
                self._by_stem[str(path.with_suffix(""))].append(name)
                for start in range(len(path.parts)):
                    self._by_ending["/".join(path.parts[start:])].append(name)
                self._by_name_stem[path.stem].append(name)

    def find(self, path: str, beside: str = "") -> str:
        """Return the image of a path, with or without suffix.

        The path may be in the folder, or beside another file.

        A relative path may have further folders at its beginning, or lack some. Of a path of
        another machine, the longest ending counts that only one image has.

        Raises:
            DatasetError: the path leads up, or means no image or several.
        """
        wanted = _parts(path)
        if ABSOLUTE.match(path.replace("\\", "/")):
            return self._one(self._longest_ending(wanted), path)
        inside = "/".join(wanted)
        relative = str(PurePosixPath(_normal(beside)).parent / inside)
        images = (
            self._by_path.get(inside)
            or self._by_path.get(relative)
            or self._by_stem.get(inside)
            or self._by_stem.get(relative)
            or self._by_ending.get(inside)
            or self._inner_path(wanted)
        )
        return self._one(images, path)

    def find_by_ending(self, path: str) -> str:
        """Return the image of an address or a path of another machine: that of its longest ending.

        Raises:
            DatasetError: the path leads up, or means no image or several.
        """
        parts = _parts(path)
        return self._one(self._by_path.get("/".join(parts)) or self._longest_ending(parts), path)

    def has_name(self, path: str) -> bool:
        """Return whether an image in any folder has the file name of a path."""
        return _normal(path).rpartition("/")[2] in self._by_ending

    def exactly(self, path: str) -> list[str]:
        """Return the image at exactly this path, or nothing."""
        return self._by_path.get(_normal(path), [])

    def at(self, path: str) -> list[str]:
        """Return the images at exactly this path, without suffix or with it, as in a.png.txt."""
        return self._by_stem.get(_normal(path)) or self._by_path.get(_normal(path), [])

    def named(self, stem: str) -> list[str]:
        """Return the images with this file name without suffix, in any folder."""
        return self._by_name_stem.get(_normal(stem), [])

    def _inner_path(self, wanted: Sequence[str]) -> list[str]:
        """Return the image whose whole path is an ending of a path, the longest one."""
        for start in range(1, len(wanted)):
            images = self._by_path.get("/".join(wanted[start:]))
            if images:
                return images
        return []

    def _longest_ending(self, wanted: Sequence[str]) -> list[str]:
        for start in range(len(wanted)):
            images = self._by_ending.get("/".join(wanted[start:]))
            if images:
                return images
        return []

    def _one(self, images: Sequence[str], path: str) -> str:
        if not images:
            raise no_image(path)
        if len(images) > 1:
            raise several_images(images, path)
        return images[0]


def no_image(path: str) -> DatasetError:
    """Return the error about a path that means no image."""
    hint = "links outside are not followed"
    return DatasetError(f"no PNG, JPEG or WebP file {path} in the data set's folder; {hint}")


def several_images(images: Sequence[str], path: str) -> DatasetError:
    """Return the error about a path that means several images."""
    listed = ", ".join(images[:MAX_LISTED])
    return DatasetError(f"{len(images)} images fit the name {path}: {listed}")


def is_image(name: str) -> bool:
    """Return whether a file's name is that of an image that the service reads."""
    return name.lower().endswith(tuple(FORMATS))


def _normal(path: str) -> str:
    """Return a path as other systems write it too: macOS splits letters from their accents."""
    return unicodedata.normalize("NFC", path)


def refuse_climbing(path: str) -> None:
    """Raise `DatasetError` if a path leads up."""
    if ".." in path.replace("\\", "/").split("/"):
        raise DatasetError(f"expected a path in the data set's folder, got {path}")


def _parts(path: str) -> list[str]:
    """Return the parts of a path of any system; `DatasetError` if it leads up or is empty."""
    refuse_climbing(path)
    slashes = _normal(path).replace("\\", "/")
    parts = [part for part in slashes.split("/") if part not in {"", "."}]
    if not parts:
        raise DatasetError("the name of the image is empty")
    return parts
