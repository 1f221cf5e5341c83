"""Engines, instances and threads for a machine and weights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from utils.machine import Machine
from utils.plan import ENGINES, PlanError, make_plan

LAPTOP = Machine(cores=2, bf16=False, gpus=0, openvino=True)
WITH_BF16 = replace(LAPTOP, bf16=True)
SERVER = replace(WITH_BF16, cores=16)
GPU = replace(SERVER, gpus=1)


def engines(machine: Machine, architecture: str = "mobile_sam", engine: str = "auto") -> tuple[str, str]:
    plan = make_plan(machine, architecture, engine)
    return plan.encoder.engine, plan.decoder.engine


def test_the_quickest_engine_of_the_machine_is_chosen():
    assert engines(LAPTOP) == ("openvino f32", "openvino f32")
    assert engines(WITH_BF16) == ("openvino bf16", "openvino bf16")
    assert engines(GPU) == ("cuda f32", "cuda f32")
    assert engines(replace(WITH_BF16, openvino=False)) == ("onnxruntime f32", "onnxruntime f32")


def test_the_built_in_weights_stay_in_float32():
    assert engines(WITH_BF16, "builtin") == ("onnxruntime f32", "onnxruntime f32")


@pytest.mark.parametrize("architecture", ["mobile_sam", "builtin"])
def test_an_engine_that_was_set_wins(architecture):
    assert engines(WITH_BF16, architecture, "onnxruntime") == ("onnxruntime f32", "onnxruntime f32")
    assert engines(WITH_BF16, architecture, "openvino") == ("openvino f32", "openvino f32")
    assert engines(WITH_BF16, architecture, "openvino-bf16") == ("openvino bf16", "openvino bf16")
    assert engines(GPU, architecture, "tensorrt") == ("tensorrt f16", "cuda f32")
    assert engines(GPU, architecture, "openvino") == ("openvino f32", "openvino f32")


@pytest.mark.parametrize(
    ("machine", "engine", "message"),
    [
        (LAPTOP, "openvino-bf16", "openvino-bf16 needs a CPU with AMX or AVX512-BF16"),
        (LAPTOP, "tensorrt", "tensorrt needs an NVIDIA GPU and an ONNX Runtime with GPU support"),
        (replace(LAPTOP, openvino=False), "openvino", "needs the package openvino"),
    ],
)
def test_an_engine_that_cannot_run_here_is_an_error(machine, engine, message):
    with pytest.raises(PlanError, match=message):
        make_plan(machine, "mobile_sam", engine)


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 6, 8, 16, 64])
@pytest.mark.parametrize("engine", ["auto", "onnxruntime"])
def test_threads_of_all_instances_are_at_most_the_cores(cores, engine):
    plan = make_plan(replace(SERVER, cores=cores), "mobile_sam", engine)
    assert 1 <= plan.encoder.instances * plan.encoder.threads <= cores
    # There are two decoders even where one alone has all the cores.
    assert 1 <= plan.decoder.threads <= cores
    assert plan.decoder.instances == 2 or plan.decoder.instances * plan.decoder.threads <= cores


def test_two_cores_encode_one_image_at_a_time_on_both():
    plan = make_plan(LAPTOP, "mobile_sam")
    assert (plan.encoder.instances, plan.encoder.threads) == (1, 2)
    assert (plan.decoder.instances, plan.decoder.threads) == (2, 2)
    assert list(plan.instances().values()) == [2, 2, 1, 1]


def test_many_cores_run_several_things_at_once():
    plan = make_plan(SERVER, "mobile_sam")
    assert (plan.encoder.instances, plan.encoder.threads) == (2, 8)
    assert (plan.decoder.instances, plan.decoder.threads) == (4, 4)
    assert list(plan.instances().values()) == [3, 8, 2, 2]


def test_a_gpu_takes_larger_runs():
    assert make_plan(GPU, "mobile_sam").decoder_batch > make_plan(SERVER, "mobile_sam").decoder_batch


def test_what_was_set_wins():
    plan = make_plan(SERVER, "mobile_sam", threads=3, encoders=5, orchestrators=7)
    assert (plan.encoder.instances, plan.encoder.threads) == (5, 3)
    assert plan.decoder.threads == 3
    assert (plan.orchestrators, plan.orchestrators_cached) == (7, 7)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_log_names_the_engines(engine):
    plan = make_plan(GPU, "mobile_sam", engine)
    assert f"encoder: {plan.encoder.engine}, " in str(plan)
    assert f"decoder: {plan.decoder.engine}, " in str(plan)
