"""Pascal VOC: an XML file per image. Boxes are the first and last pixels, counted from 1."""

from pathlib import PurePosixPath
from xml.etree import ElementTree as Xml

from mobile_sam_client._datasets.dataset import MAX_LABEL_BYTES, Dataset, DatasetImage
from mobile_sam_client._datasets.image_paths import refuse_climbing, several_images
from mobile_sam_client._datasets.texts import decode_xml
from mobile_sam_client._datasets.values import DatasetError, number, pixels, size_fields, sorted_box

CORNERS = ("xmin", "ymin", "xmax", "ymax")
SIDES = ("width", "height")
IMAGE_FOLDERS = {"Annotations": ("JPEGImages", "images"), "annotations": ("images", "JPEGImages")}
"""Folders of images, by the folder of their XML files."""
NO_NAME = "object"


def read_voc(data: Dataset, _: str) -> None:
    """Read the boxes of all XML files."""
    for name in data.names:
        if name.lower().endswith(".xml"):
            with data.reporting(name):
                _read_file(data, name)


def _read_file(data: Dataset, name: str) -> None:
    root = parse_xml(data.content(name, MAX_LABEL_BYTES))
    if root.tag != "annotation":
        raise DatasetError(f"expected Pascal VOC's <annotation>, got <{root.tag[:80]}>")
    size = size_fields(*(pixels(_text(root, f"size/{side}"), side) for side in SIDES))
    image = data.image(_find_image(data, name, _text(root, "filename"), size), size)
    for index, element in enumerate(root.findall("object"), 1):
        with data.reporting(name, object=index):
            _read_object(data, image, element, file=name, index=index)


def parse_xml(content: bytes) -> Xml.Element:
    """Return the root of an XML document.

    Entities would be declared in a document type, which Pascal VOC has not: it is refused.
    """
    text = decode_xml(content).lstrip()
    if "<!DOCTYPE" in text:
        raise DatasetError("expected XML without a document type")
    try:
        return Xml.fromstring(text)  # noqa: S314 (without entities)
    except (Xml.ParseError, ValueError) as error:
        raise DatasetError(f"malformed: {error}") from None


def _read_object(
    data: Dataset,
    image: DatasetImage,
    element: Xml.Element,
    *,
    file: str,
    index: int,
) -> None:
    if element.find("bndbox") is None:
        if element.find("robndbox") is not None:
            raise DatasetError("robndbox, a rotated box, is not read, and bndbox is missing")
        raise DatasetError("bndbox is missing")
    corners = [_corner(element, tag) for tag in CORNERS]
    x0, y0, x1, y1 = sorted_box(*corners)
    data.check_pixels(image, (x0, y0, x1, y1))
    # Tools that count from 0 write 0 for the first pixel.
    x0, y0 = (value if 0 <= value < 1 else value - 1 for value in (x0, y0))
    category_name = _text(element, "name")
    if not category_name:
        category_name = NO_NAME
        data.note(f"it has no name; it was named '{NO_NAME}'", file, object=index)
    fields = {child.tag: child.text for child in element if not len(child) and child.tag != "name"}
    data.add(image, (x0, y0, x1, y1), data.category(category_name), fields)


def _corner(element: Xml.Element, tag: str) -> float:
    text = _text(element, f"bndbox/{tag}")
    if not text:
        raise DatasetError(f"{tag} is missing")
    return number(text, tag)


def _text(element: Xml.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _find_image(data: Dataset, file: str, filename: str, size: dict[str, int]) -> str:
    """Return the image that `filename` names, or that has the XML file's own name.

    If they are two images, the size decides, and then the XML file's name.
    """
    same_named = _images_of_own_name(data, file)
    named = ""
    problem = DatasetError("filename is missing, and no image has the name of the XML file")
    if filename:
        refuse_climbing(filename)
        try:
            named = _named_image(data, file, filename)
        except DatasetError as error:
            problem = error
    if not named and len(same_named) > 1:
        raise several_images(same_named, PurePosixPath(file).stem)
    if not named and not same_named:
        raise problem
    if not named:
        return same_named[0]
    if len(same_named) != 1 or same_named[0] == named:
        return named
    wanted_wh = tuple(size.values())
    if wanted_wh:
        fitting = [image for image in (same_named[0], named) if data.size_wh(image) == wanted_wh]
        if len(fitting) == 1:
            return fitting[0]
    taken = f"{same_named[0]}, which has the file's name, was taken"
    data.note(f"filename names another image, {named}; {taken}", file)
    return same_named[0]


def _named_image(data: Dataset, file: str, filename: str) -> str:
    """Return the image that `filename` names, or the only one of its name with another suffix."""
    for folder in _image_folders(file):
        path = str(PurePosixPath(folder) / filename)
        images = data.paths.exactly(path) or data.paths.at(path)
        if len(images) == 1:
            return images[0]
    try:
        return data.paths.find(filename)
    except DatasetError:
        pass
    try:
        return data.paths.find_by_ending(filename)
    except DatasetError as error:
        stems = data.paths.named(PurePosixPath(filename.replace("\\", "/")).stem)
        if len(stems) != 1:
            raise error from None
        return stems[0]


def _images_of_own_name(data: Dataset, file: str) -> list[str]:
    """Return the images of an XML file's name, in the folders of images or else anywhere."""
    stem = PurePosixPath(file).stem
    for folder in _image_folders(file):
        images = data.paths.at(str(PurePosixPath(folder) / stem))
        if images:
            return images
    return data.paths.named(stem)


def _image_folders(file: str) -> list[str]:
    """Return where the image of an XML file may be: folders beside `Annotations`, and its own."""
    folder = PurePosixPath(file).parent
    folders = []
    for position, part in enumerate(folder.parts):
        for other in IMAGE_FOLDERS.get(part, ()):
            images = PurePosixPath(*folder.parts[:position], other)
            folders.append(str(images.joinpath(*folder.parts[position + 1 :])))
            folders.append(str(images))
    return [*folders, str(folder)]
