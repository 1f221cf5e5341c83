"""A log in a flood."""

from __future__ import annotations

import logging

import pytest

from utils.edge.floods import MAX_ADDRESSES, FloodLog, _Span


class Flood:
    """A log of two lines in 10 s, with its clock and what it wrote."""

    def __init__(self, caplog) -> None:
        self.now = 0.0
        self._caplog = caplog
        self.log = FloodLog(logging.getLogger("flood"), at_most=2, seconds=10, clock=lambda: self.now)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def flood(caplog) -> Flood:
    caplog.set_level(logging.INFO)
    return Flood(caplog)


def test_a_flood_of_one_kind_is_counted_and_others_are_written(flood):
    for number in range(5):
        flood.log.log("busy", f"busy {number}", "192.0.2.1")
    flood.log.log("wrong", "wrong 0", "192.0.2.1")
    flood.now = 11
    flood.log.log("busy", "busy 5", "192.0.2.1")
    summary = "busy: 3 more in 11 s, 3 or more from 192.0.2.1"
    assert flood.lines == ["busy 0", "busy 1", "wrong 0", summary, "busy 5"]


def test_a_trickle_is_written_whole(flood):
    for number in range(6):
        flood.now = 6.0 * number
        flood.log.log("busy", f"busy {number}", "192.0.2.1")
    assert flood.lines == [f"busy {number}" for number in range(6)]


def test_a_summary_names_the_addresses_that_most_lines_came_from(flood):
    for address, times in (("192.0.2.9", 2), ("192.0.2.1", 1), ("192.0.2.2", 7), ("192.0.2.3", 2), ("192.0.2.4", 4)):
        for _ in range(times):
            flood.log.log("no key", "no key", address)
    flood.log.summarise_ended(all_spans=True)
    told = "no key: 14 more in 0 s, 7 or more from 192.0.2.2, 4 or more from 192.0.2.4, 2 or more from 192.0.2.3"
    assert flood.lines[2:] == [told]


def test_a_span_is_summarised_at_any_later_line_or_request_and_once(flood):
    for _ in range(4):
        flood.log.log("busy", "busy", "192.0.2.1")
    flood.now = 9
    flood.log.summarise_ended()
    assert len(flood.lines) == 2
    flood.now = 10
    flood.log.log("wrong", "wrong", "192.0.2.2")
    flood.log.summarise_ended()
    assert flood.lines[2:] == ["busy: 2 more in 10 s, 2 or more from 192.0.2.1", "wrong"]


def test_a_guesser_stays_visible_among_any_number_of_addresses_in_bounded_memory():
    span = _Span(0.0)
    for number in range(20_000):
        span.count(f"192.0.2.1, {number}")
        if number % 10 == 0:
            span.count("the guesser")
        assert len(span._counts) <= MAX_ADDRESSES
    assert "from the guesser" in span.most()


def test_a_flood_from_everywhere_names_nobody():
    span = _Span(0.0)
    for number in range(MAX_ADDRESSES + 1):
        span.count(str(number))
    assert span.most() == "from many addresses"
