"""A log in a flood."""

from __future__ import annotations

import logging

from utils.edge.floods import FloodLog


def test_a_flood_of_one_kind_is_counted_and_others_are_written(caplog):
    now = [0.0]
    log = FloodLog(logging.getLogger("flood"), at_most=2, seconds=10, clock=lambda: now[0])
    with caplog.at_level(logging.INFO):
        for number in range(5):
            log.log("busy", f"busy {number}")
        log.log("wrong", "wrong 0")
        now[0] = 11
        log.log("busy", "busy 5")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["busy 0", "busy 1", "wrong 0", "busy: 3 more in 11 s", "busy 5"]


def test_a_trickle_is_written_whole(caplog):
    now = [0.0]
    log = FloodLog(logging.getLogger("flood"), at_most=2, seconds=10, clock=lambda: now[0])
    with caplog.at_level(logging.INFO):
        for number in range(6):
            now[0] = 6.0 * number
            log.log("busy", f"busy {number}")
    assert [record.getMessage() for record in caplog.records] == [f"busy {number}" for number in range(6)]
