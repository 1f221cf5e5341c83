"""Times of the stages of a request, from metrics."""

from benchmarks.servers import CACHED, COLD
from benchmarks.stage_times import as_table, stage_seconds

METRICS = """\
# TYPE mobile_sam_stage_seconds_total counter
mobile_sam_stage_seconds_total{model="mobile_sam",stage="cache"} 0.25
mobile_sam_stage_seconds_total{model="mobile_sam_cached",stage="cache"} 0.5
mobile_sam_stage_seconds_total{model="mobile_sam",stage="encode"} 1e-05
mobile_sam_stage_total{model="mobile_sam",stage="encode"} 7
"""


def test_seconds_of_a_stage_are_those_of_all_models():
    assert stage_seconds(METRICS) == {"cache": 0.75, "encode": 1e-05}


def test_table_has_stages_that_took_time_the_rest_and_the_whole_request():
    times = {COLD: {"encode": 6.0, "wait": 0.0}, CACHED: {"encode": 0.0, "wait": 0.0}}
    printed = as_table(times, {COLD: 10.0, CACHED: 3.0})
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in printed.splitlines()[2:]]
    assert rows == [
        ["encode", "6.00", "0"],
        ["rest", "4.00", "3.00"],
        ["whole request", "10.0", "3.00"],
    ]
