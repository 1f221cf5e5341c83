"""Breakdown of a request by Triton's counters."""

import pytest

from benchmarks.where import durations, steps

METRICS = """\
# TYPE nv_inference_request_duration_us counter
nv_inference_request_duration_us{model="mobile_sam_decoder",version="1"} 21000
nv_inference_queue_duration_us{model="mobile_sam_decoder",version="1"} 1000
nv_inference_compute_infer_duration_us{model="mobile_sam_decoder",version="1"} 15000
nv_inference_count{model="mobile_sam_decoder",version="1"} 1
nv_gpu_utilization{gpu_uuid="x"} 0.5
"""


def test_durations_are_read_in_seconds():
    assert durations(METRICS) == {
        ("mobile_sam_decoder", "request"): pytest.approx(0.021),
        ("mobile_sam_decoder", "compute_infer"): pytest.approx(0.015),
    }


@pytest.mark.parametrize(
    "spent",
    [
        pytest.param({("mobile_sam_cached", "request"): 0.026}, id="known image"),
        pytest.param(
            {
                ("mobile_sam_cached", "request"): 0.003,
                ("mobile_sam", "request"): 0.080,
                ("mobile_sam_encoder", "request"): 0.040,
                ("mobile_sam_encoder", "compute_infer"): 0.035,
            },
            id="new image",
        ),
    ],
)
def test_steps_add_up_to_the_request(spent):
    *found, whole = steps(0.1, {**durations(METRICS), **spent}).values()
    assert sum(found) == pytest.approx(whole) == 0.1
    assert min(found) > 0
