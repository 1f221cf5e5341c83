"""Log summaries of repeated events."""

import logging

import pytest

from utils.observability.floods import MAX_ADDRESSES, FloodLog, _Window


class Flood:
    """A `FloodLog` of two lines in 10 s, with its clock and its output."""

    def __init__(self, caplog) -> None:
        self.now = 0.0
        self._caplog = caplog
        self.log = FloodLog(logging.getLogger("flood"), max_lines=2, window_s=10, clock=lambda: self.now)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def flood(caplog) -> Flood:
    caplog.set_level(logging.INFO)
    return Flood(caplog)


def test_further_lines_of_one_kind_are_summarised(flood):
    for number in range(5):
        flood.log.log("busy", f"busy {number}", "192.0.2.1")
    flood.log.log("wrong", "wrong 0", "192.0.2.1")
    flood.now = 11
    flood.log.log("busy", "busy 5", "192.0.2.1")
    summary = "busy: 3 more in 11 s, at least 3 from 192.0.2.1"
    assert flood.lines == ["busy 0", "busy 1", "wrong 0", summary, "busy 5"]


def test_slow_lines_are_all_written(flood):
    for number in range(6):
        flood.now = 6.0 * number
        flood.log.log("busy", f"busy {number}", "192.0.2.1")
    assert flood.lines == [f"busy {number}" for number in range(6)]


def test_summary_names_the_most_frequent_addresses(flood):
    for address, times in (("192.0.2.9", 2), ("192.0.2.1", 1), ("192.0.2.2", 7), ("192.0.2.3", 2), ("192.0.2.4", 4)):
        for _ in range(times):
            flood.log.log("no key", "no key", address)
    flood.log.summarise_ended(all_windows=True)
    summary = "no key: 14 more in 0 s, at least 7 from 192.0.2.2, at least 4 from 192.0.2.4, at least 2 from 192.0.2.3"
    assert flood.lines[2:] == [summary]


def test_ended_window_is_summarised_once(flood):
    for _ in range(4):
        flood.log.log("busy", "busy", "192.0.2.1")
    flood.now = 9
    flood.log.summarise_ended()
    assert len(flood.lines) == 2
    flood.now = 10
    flood.log.log("wrong", "wrong", "192.0.2.2")
    flood.log.summarise_ended()
    assert flood.lines[2:] == ["busy: 2 more in 10 s, at least 2 from 192.0.2.1", "wrong"]


def test_frequent_address_is_found_among_many_in_bounded_memory():
    window = _Window(0.0)
    for number in range(20_000):
        window.count(f"192.0.2.1, {number}")
        if number % 10 == 0:
            window.count("the guesser")
        assert len(window._counts) <= MAX_ADDRESSES
    assert "from the guesser" in window.top_addresses()


def test_summary_of_many_rare_addresses_names_none():
    window = _Window(0.0)
    for number in range(MAX_ADDRESSES + 1):
        window.count(str(number))
    assert window.top_addresses() == "from many addresses"
