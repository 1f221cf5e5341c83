"""File name rules of a batch: images and patterns."""

from __future__ import annotations

import pytest

from deploy.ray.names import folder_of, is_image, matcher


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/photos/a.JPG", True),
        ("/photos/b/c.webp", True),
        ("/photos/notes.txt", False),
        ("/photos/.hidden/a.jpg", False),
        ("/photos/.part.jpg", False),
    ],
    ids=["upper case", "subfolder", "other suffix", "hidden folder", "hidden"],
)
def test_images_are_recognised_by_name(path, expected):
    assert is_image(path, "/photos") is expected


def test_hidden_root_folder_is_accepted():
    assert is_image("/home/.photos/a.jpg", "/home/.photos")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("/p/*.jpg", ["/p/a.jpg", "/p/.jpg"], ["/p/b/a.jpg", "/p/a.jpg.png", "/q/a.jpg"]),
        ("/p/**/*.jpg", ["/p/a.jpg", "/p/b/a.jpg", "/p/b/c/a.jpg"], ["/pa.jpg", "/p/a.png"]),
        ("/p/day*/a.jpg", ["/p/day1/a.jpg", "/p/day/a.jpg"], ["/p/day/1/a.jpg"]),
        ("b/(1)+.*", ["b/(1)+.jpg"], ["b/1.jpg"]),
    ],
    ids=["one folder", "subfolders", "folder pattern", "regex characters"],
)
def test_pattern_matches(pattern, matching, other):
    matches = matcher(pattern)
    assert [path for path in [*matching, *other] if matches(path)] == matching


@pytest.mark.parametrize(
    ("pattern", "folder"), [("/p/q/*.jpg", "/p/q/"), ("/p/da*/x.jpg", "/p/"), ("bucket/**", "bucket/"), ("*.jpg", "")]
)
def test_folder_of_pattern_ends_before_the_first_star(pattern, folder):
    assert folder_of(pattern) == folder
