"""Values of label files: what is a number, a size and an id."""

import pytest

from mobile_sam_client._datasets.values import DatasetError, identifier, number, pixels


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        (-1.5, -1.5),
        ("780", 780),
        (" 2.50 ", 2.5),
        ("+1e2", 100),
        (".5", 0.5),
        ("5.", 5),
        ("0", 0),
    ],
)
def test_number_is_read_from_json_and_text(value, expected):
    assert number(value, "x") == expected


@pytest.mark.parametrize(
    "value",
    [
        *(True, False, None, [], {}, [1], float("nan"), float("inf"), 10**400),
        *(
            "",
            "a",
            "nan",
            "inf",
            "Infinity",
            "1_0",
            "0x10",
            "1,5",
            "1 2",
            "--1",
            "1e999",
            "\u0661",
            "12px",
        ),
    ],
    ids=repr,
)
def test_number_refuses_what_is_none(value):
    with pytest.raises(DatasetError, match="expected a number in x, got "):
        number(value, "x")


def test_number_in_a_long_text_ends_at_once():
    with pytest.raises(DatasetError, match=r'got "1{79}\.\.\.$'):
        number("1" * 10**6 + "x", "x")


@pytest.mark.parametrize(
    ("value", "expected"), [(200, 200), ("200", 200), (200.0, 200), (None, 0), ("", 0), (0, 0)]
)
def test_pixels_are_whole_or_unknown(value, expected):
    assert pixels(value, "width") == expected


@pytest.mark.parametrize("value", [True, False, 1.5, -1, "wide", float("nan"), float("inf"), [200]])
def test_pixels_refuse_what_is_no_size(value):
    with pytest.raises(DatasetError, match="expected width as a whole number of pixels, got "):
        pixels(value, "width")


def test_ids_of_one_text_are_equal():
    assert identifier(1, "id") == identifier("1", "id") == identifier(1.0, "id")
    assert len({identifier(value, "id") for value in (1, "01", "1.0", " 1", 1.5)}) == 5


@pytest.mark.parametrize("value", [True, False, None, [], {}, float("nan"), float("inf")])
def test_id_refuses_what_is_none(value):
    with pytest.raises(DatasetError, match="expected an id in id, got "):
        identifier(value, "id")
