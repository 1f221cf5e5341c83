"""Which image of a folder a path in a label file means."""

import pytest

from mobile_sam_client._datasets.image_paths import ImagePaths
from mobile_sam_client._datasets.values import DatasetError

IMAGES = ImagePaths(
    [
        "a.png",
        "a.png.jpg",
        "set/a/001.jpg",
        "set/b/001.jpg",
        "set/b/c.webp",
        "labels/a.txt",
        "d/x.JPG",
    ]
)


@pytest.mark.parametrize(
    ("path", "beside", "expected"),
    [
        ("a.png", "", "a.png"),
        ("./a.png", "", "a.png"),
        ("set\\b\\c.webp", "", "set/b/c.webp"),
        ("set/b/c", "", "set/b/c.webp"),
        ("c.webp", "set/b/boxes.json", "set/b/c.webp"),
        ("c.webp", "", "set/b/c.webp"),
        ("b/001.jpg", "", "set/b/001.jpg"),
        ("data/set/b/001.jpg", "", "set/b/001.jpg"),
        ("x", "d/x.xml", "d/x.JPG"),
        ("/home/me/b/001.jpg", "", "set/b/001.jpg"),
        ("C:\\me\\a\\001.jpg", "", "set/a/001.jpg"),
        ("https://images.example/b/001.jpg", "", "set/b/001.jpg"),
    ],
)
def test_path_means_the_image_that_has_it(path, beside, expected):
    assert IMAGES.find(path, beside) == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("b.png", "no PNG, JPEG or WebP file b.png in the data set's folder"),
        ("b/c/001.jpg", "no PNG, JPEG or WebP file b/c/001.jpg"),
        ("labels/a.txt", "no PNG, JPEG or WebP file labels/a.txt"),
        ("001.jpg", "2 images fit the name 001.jpg: set/a/001.jpg, set/b/001.jpg"),
        ("/home/c/001.jpg", "2 images fit the name /home/c/001.jpg"),
        ("../a.png", "expected a path in the data set's folder, got ../a.png"),
        ("set\\..\\a.png", "expected a path in the data set's folder"),
        ("/..", "expected a path in the data set's folder"),
        ("", "the name of the image is empty"),
        ("/", "the name of the image is empty"),
    ],
)
def test_path_of_none_or_several_is_an_error(path, message):
    with pytest.raises(DatasetError) as caught:
        IMAGES.find(path)
    assert message in str(caught.value)
