"""What the command of a batch takes."""

from __future__ import annotations

import pytest

from deploy.ray.__main__ import parser


def test_options_have_defaults_and_bounds():
    given = parser().parse_args(["photos", "--out", "found"])
    assert (given.url, given.workers, given.in_flight, given.points_per_side) == ("http://127.0.0.1:3000", 2, 8, None)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--workers", "0", "expected a whole number from 1 to 1000000, got '0'"),
        ("--in-flight", "17", "expected a whole number from 1 to 16, got '17'"),
        ("--points-per-side", "many", "expected a whole number from 1 to 64, got 'many'"),
        ("--part-size", "-1", "expected a whole number from 1 to 1000000, got '-1'"),
    ],
)
def test_numbers_out_of_their_bounds_are_refused(option, value, expected, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["photos", "--out", "found", f"{option}={value}"])
    assert expected in capsys.readouterr().err
