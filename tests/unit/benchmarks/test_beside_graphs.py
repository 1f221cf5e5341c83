"""CPU time beside the graphs: means of rounds, without that of an idle service."""

import numpy as np

from benchmarks.beside_graphs import AFTER, BEFORE, FULL, as_table, legend, of_masks
from benchmarks.closed_loop import Cell, Cells
from benchmarks.recording import Recording
from benchmarks.servers import CACHED, COLD, EVERYTHING, Turn

IDLE = {BEFORE: 0.1, AFTER: 0.05}


def rounds(*cpu_seconds: float) -> list[Turn]:
    """Return turns of two requests, of a second each."""
    return [Turn([1.0, 1.0], 2.0, value) for value in cpu_seconds]


def test_table_has_means_without_the_idle_services_time_and_goals():
    cells = Cells(
        {
            Cell(BEFORE, COLD): rounds(0.4, 0.6),
            Cell(AFTER, COLD): rounds(0.2, 0.3),
            Cell(BEFORE, CACHED): rounds(0.4, 0.4),
            Cell(AFTER, CACHED): rounds(0.5, 0.5),
            Cell(BEFORE, EVERYTHING): rounds(2.2, 2.2),
            Cell(AFTER, EVERYTHING): rounds(0.9, 0.9),
        }
    )
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in as_table(cells, IDLE).splitlines()[2:]
    ]
    assert rows == [
        ["new image", "150", "75.0", "0.500", "0.500 (0.500-0.500)", "<= 0.5", "met"],
        ["known image", "100", "200", "2.00", "2.00 (2.00-2.00)", "", ""],
        ["all masks", "1000", "400", "0.400", "0.400 (0.400-0.400)", "<= 0.2", "missed"],
    ]


def test_legend_names_rounds_requests_and_idle_time():
    text = legend(FULL, IDLE)
    assert "the mean over 8 rounds" in text
    assert "10 new image, 40 known image, 1 all masks" in text
    assert "32 x 32 points" in text
    assert "100.0 ms before, 50.0 ms after per second" in text


def test_legend_names_the_masks_of_a_grid():
    logits, scores = np.zeros((17, 4, 1, 1)), np.zeros((17, 4))
    masks = {"areas": np.array([8, 24]), "mask_bits": np.zeros((2, 10, 2), np.uint8)}
    text = of_masks(Recording({}, logits, scores, {}, masks))
    assert text.startswith("For 16 points they answer 2 masks")
    assert "with 10% of the image's pixels" in text
