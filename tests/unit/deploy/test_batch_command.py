"""Options of the batch command."""

from __future__ import annotations

import pytest

from deploy.ray.__main__ import parser


def test_options_have_defaults():
    options = parser().parse_args(["photos", "--out", "found"])
    assert (options.url, options.workers, options.in_flight) == ("http://127.0.0.1:3000", 2, 8)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--workers", "0", "expected an integer from 1 to 1000000, got '0'"),
        ("--in-flight", "17", "expected an integer from 1 to 16, got '17'"),
        ("--points-per-side", "many", "expected an integer from 1 to 64, got 'many'"),
        ("--part-size", "-1", "expected an integer from 1 to 1000000, got '-1'"),
    ],
)
def test_number_out_of_range_is_rejected(option, value, expected, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["photos", "--out", "found", f"{option}={value}"])
    assert expected in capsys.readouterr().err
