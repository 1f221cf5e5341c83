"""Which files of a batch are images, and which a pattern means."""

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
    ids=["capitals", "in a folder below", "another kind", "in a hidden folder", "hidden"],
)
def test_images_are_told_by_their_names(path, expected):
    assert is_image(path, "/photos") is expected


def test_a_hidden_folder_may_be_named_itself():
    assert is_image("/home/.photos/a.jpg", "/home/.photos")


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("/p/*.jpg", ["/p/a.jpg", "/p/.jpg"], ["/p/b/a.jpg", "/p/a.jpg.png", "/q/a.jpg"]),
        ("/p/**/*.jpg", ["/p/a.jpg", "/p/b/a.jpg", "/p/b/c/a.jpg"], ["/pa.jpg", "/p/a.png"]),
        ("/p/day*/a.jpg", ["/p/day1/a.jpg", "/p/day/a.jpg"], ["/p/day/1/a.jpg"]),
        ("b/(1)+.*", ["b/(1)+.jpg"], ["b/1.jpg"]),
    ],
    ids=["one folder", "folders below", "folders of a kind", "what is special elsewhere"],
)
def test_a_pattern_means_these_and_no_others(pattern, meant, not_meant):
    means = matcher(pattern)
    assert [path for path in [*meant, *not_meant] if means(path)] == meant


@pytest.mark.parametrize(
    ("pattern", "folder"), [("/p/q/*.jpg", "/p/q/"), ("/p/da*/x.jpg", "/p/"), ("bucket/**", "bucket/"), ("*.jpg", "")]
)
def test_a_pattern_is_looked_for_below_the_names_before_its_first_star(pattern, folder):
    assert folder_of(pattern) == folder
