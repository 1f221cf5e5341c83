"""Lines that repeat: the first ones are written, the others counted."""

import logging

import pytest

from orchestrator.flood_log import MAX_ADDRESSES, FloodLog, _Window


class Flood:
    """A `FloodLog` of two lines in 10 s, with its clock and its output."""

    def __init__(self, caplog) -> None:
        self.now, self._caplog = 0.0, caplog
        self.log = FloodLog(
            logging.getLogger("flood"), max_lines=2, window_s=10, clock=lambda: self.now
        )

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
    flood.now = 9
    flood.log.summarise_ended()
    assert flood.lines == ["busy 0", "busy 1", "wrong 0"]
    flood.now = 11
    flood.log.log("busy", "busy 5", "192.0.2.1")
    flood.log.summarise_ended()
    assert flood.lines[3:] == ["busy: 3 more in 11 s, at least 3 from 192.0.2.1", "busy 5"]


def test_summary_names_the_most_frequent_addresses(flood):
    for address, times in (
        ("192.0.2.9", 2),
        ("192.0.2.1", 1),
        ("192.0.2.2", 7),
        ("192.0.2.3", 2),
        ("192.0.2.4", 4),
    ):
        for _ in range(times):
            flood.log.log("no key", "no key", address)
    flood.log.summarise_ended(all_windows=True)
    summary = (
        "no key: 14 more in 0 s, at least 7 from 192.0.2.2, at least 4 from 192.0.2.4, at least 2"
        " from 192.0.2.3"
    )
    assert flood.lines[2:] == [summary]


def test_frequent_address_is_found_among_many_in_bounded_memory():
    window, rare = _Window(0.0), _Window(0.0)
    for number in range(20_000):
        window.count(f"192.0.2.1, {number}")
        if number % 10 == 0:
            window.count("the guesser")
        assert len(window._counts) <= MAX_ADDRESSES
    assert "from the guesser" in window.top_addresses()
    for number in range(MAX_ADDRESSES + 1):
        rare.count(str(number))
    assert rare.top_addresses() == "from many addresses"


def test_summary_of_lines_about_nobody_names_no_address(flood):
    for number in range(4):
        flood.log.log("failing", f"failing {number}")
    flood.log.summarise_ended(all_windows=True)
    assert flood.lines == ["failing 0", "failing 1", "failing: 2 more in 0 s"]


def test_line_may_have_another_level_than_the_summary(caplog):
    caplog.set_level(logging.INFO)
    log = FloodLog(logging.getLogger("flood"), max_lines=1, window_s=10, level=logging.ERROR)
    for _ in range(2):
        log.log("failing", "failing", level=logging.WARNING)
    log.summarise_ended(all_windows=True)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
