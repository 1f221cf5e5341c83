"""The capacity model: its bounds, its limits, and its command."""

import math
import re
import sys

import pytest

from benchmarks import capacity
from benchmarks.capacity import FIGURES, predict, scenario
from harness import ROOT

COSTS = {
    "encode_s": 0.3,
    "upload_s_per_mb": 0.01,
    "prompt_s": 0.03,
    "embedding_s": 0.01,
    "idle_cores": 0.02,
    "memory_bytes": 2**31,
    "embedding_bytes": 2_000_000,
    "prompt_in_bytes": 250,
    "prompt_out_bytes": 1500,
}
SHARED = {"redis": True, "hashed": False}


def fixed(**changes: float) -> dict[str, float]:
    """Return the prediction for 4 replicas and 60 annotators who open an image and send 20
    prompts a minute.
    """
    usual = {
        "annotators": 60,
        "active": 1,
        "images_per_minute": 1,
        "clicks_per_minute": 20,
        "requests_per_click": 1,
    }
    return predict(
        scenario(**{**usual, "new_share": 1, "file_bytes": 500_000, "replicas": 4, **changes}),
        COSTS,
    )


def test_cores_in_use_are_the_sum_of_encodes_uploads_prompts_and_idle_replicas():
    found = fixed()
    assert found["cores in use"] == pytest.approx(0.3 + 0.5 * 0.01 + 20 * 0.03 + 4 * 0.02)
    assert (found["requests/s"], found["encoded images/s"]) == (21, 1)
    assert found["received, MB/s"] == pytest.approx(0.5 * 4 / 3 + 20 * 250 / 1e6)


def test_local_decoding_sends_an_embedding_for_each_image_and_no_masks():
    found = fixed(requests_per_click=0)
    assert found["cores in use"] == pytest.approx(0.3 + 0.5 * 0.01 + 0.01 + 4 * 0.02)
    assert found["sent, MB/s"] == pytest.approx(2)


def test_random_routing_reaches_all_replicas_which_encode_or_read_from_redis():
    hashed, alone, shared = (
        fixed(redis=True, hashed=True),
        fixed(redis=False, hashed=False),
        fixed(**SHARED),
    )
    assert [each["encoded images/s"] for each in (hashed, alone, shared)] == pytest.approx(
        [1, 4, 1], rel=0.01
    )
    assert [each["read from Redis, MB/s"] for each in (hashed, alone, shared)] == pytest.approx(
        [0, 0, 7.5], rel=0.01
    )
    assert [each["written to Redis, MB/s"] for each in (hashed, alone, shared)] == pytest.approx(
        [2.5, 0, 2.5]
    )


def test_known_images_are_not_encoded_again():
    assert fixed(new_share=0.5)["encoded images/s"] == 0.5


@pytest.mark.parametrize(("cores", "erlang_wait"), [(1, 1.0), (2, 1 / 3)])
def test_wait_is_that_of_a_queue_with_one_core_and_near_that_with_two(cores, erlang_wait):
    costs = {**COSTS, "prompt_s": 0.5, "idle_cores": 0, "encode_s": 0, "upload_s_per_mb": 0}
    given = scenario(
        annotators=60,
        active=1,
        clicks_per_minute=cores,
        requests_per_click=1,
        replicas=1,
        cores_per_replica=cores,
    )
    # With equal times of 0.5 s at half load: half of the wait with exponential times, in units of
    # the mean time.
    assert predict(given, costs)["mean wait for a core, ms"] == pytest.approx(
        1e3 * 0.5 * erlang_wait / 2, rel=0.1
    )


def test_overloaded_replicas_have_no_finite_wait():
    assert fixed(annotators=1000)["mean wait for a core, ms"] == math.inf


@pytest.mark.parametrize("weights", FIGURES)
@pytest.mark.parametrize("way", capacity.WAYS)
def test_more_annotators_need_as_much_or_more_of_everything_within_the_wanted_utilisation(
    weights, way
):
    few, many = (
        predict(scenario(annotators=each, **capacity.WAYS[way]), FIGURES[weights])
        for each in (500, 1000)
    )
    assert all(few[name] <= many[name] * (1 + 1e-9) for name in few)
    assert few["cores in use"] <= scenario()["utilisation"] * few["cores"]


def test_replicas_are_found_where_each_encodes_the_images_that_reach_it():
    found = predict(scenario(redis=False, hashed=False), COSTS)
    assert predict(scenario(redis=False, hashed=False, replicas=found["replicas"]), COSTS) == found


def test_spare_replicas_are_added():
    assert (
        predict(scenario(spare_replicas=3), COSTS)["replicas"]
        - predict(scenario(), COSTS)["replicas"]
        == 2
    )


@pytest.mark.parametrize("annotators", ["0", "-5", "nan", "inf"])
def test_invalid_numbers_of_annotators_are_refused(annotators, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["capacity", "--", annotators])
    with pytest.raises(SystemExit, match="2"):
        capacity.main()
    assert f"annotators: expected 1 to 1e+09, got {annotators}" in capsys.readouterr().err


def test_invalid_assumptions_are_refused():
    with pytest.raises(ValueError, match=re.escape("utilisation: expected 0.05 to 1, got 60")):
        scenario(utilisation=60)


def test_command_prints_a_table_of_the_given_numbers(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["capacity", "250"])
    capacity.main()
    assert "| 250, local decoding |" in capsys.readouterr().out


def test_page_has_the_current_results():
    assert capacity.report(capacity.ANNOTATORS) in (ROOT / "docs" / "capacity.md").read_text()
