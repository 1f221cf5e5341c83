"""Plans of engines, instances and threads."""

from dataclasses import replace

import pytest

from utils.triton.machine import Machine
from utils.triton.plan import ENGINES, PlanError, make_plan

LAPTOP = Machine(cores=2, bf16=False, gpus=0, openvino=True)
WITH_BF16 = replace(LAPTOP, bf16=True)
SERVER = replace(WITH_BF16, cores=16)
GPU = replace(SERVER, gpus=1)


def engines(machine: Machine, architecture: str = "mobile_sam", engine: str = "auto") -> tuple[str, str]:
    plan = make_plan(machine, architecture, engine)
    return plan.encoder.engine, plan.decoder.engine


def test_auto_selects_the_fastest_engine():
    assert engines(LAPTOP) == ("openvino f32", "openvino f32")
    assert engines(WITH_BF16) == ("openvino bf16", "openvino f32")
    assert engines(GPU) == ("cuda f32", "cuda f32")
    assert engines(replace(WITH_BF16, openvino=False)) == ("onnxruntime f32", "onnxruntime f32")


def test_builtin_weights_run_in_float32():
    assert engines(WITH_BF16, "builtin") == ("onnxruntime f32", "onnxruntime f32")


@pytest.mark.parametrize("architecture", ["mobile_sam", "builtin"])
def test_engine_setting_overrides_auto(architecture):
    assert engines(WITH_BF16, architecture, "onnxruntime") == ("onnxruntime f32", "onnxruntime f32")
    assert engines(WITH_BF16, architecture, "openvino") == ("openvino f32", "openvino f32")
    assert engines(WITH_BF16, architecture, "openvino-bf16") == ("openvino bf16", "openvino f32")
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
def test_unavailable_engine_is_an_error(machine, engine, message):
    with pytest.raises(PlanError, match=message):
        make_plan(machine, "mobile_sam", engine)


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 6, 8, 16, 64])
@pytest.mark.parametrize("engine", ["auto", "onnxruntime"])
def test_threads_do_not_exceed_the_cores(cores, engine):
    plan = make_plan(replace(SERVER, cores=cores), "mobile_sam", engine)
    assert 1 <= plan.encoder.instances * plan.encoder.threads <= cores
    # There are at least two decoders, even if together they have more threads than cores.
    assert 1 <= plan.decoder.threads <= cores
    assert plan.decoder.instances == 2 or plan.decoder.instances * plan.decoder.threads <= cores


@pytest.mark.parametrize(
    ("machine", "encoder", "decoder", "orchestrators"),
    [(LAPTOP, (1, 2), (2, 2), [2, 4, 1, 1]), (SERVER, (2, 8), (4, 4), [3, 8, 2, 2])],
    ids=["two cores", "many cores"],
)
def test_plan_has_instances_and_threads_by_cores(machine, encoder, decoder, orchestrators):
    plan = make_plan(machine, "mobile_sam")
    assert (plan.encoder.instances, plan.encoder.threads) == encoder
    assert (plan.decoder.instances, plan.decoder.threads) == decoder
    assert list(plan.instances.values()) == orchestrators


def test_decoder_batch_is_larger_on_a_gpu():
    assert make_plan(GPU, "mobile_sam").decoder_batch > make_plan(SERVER, "mobile_sam").decoder_batch


def test_settings_override_the_plan():
    plan = make_plan(SERVER, "mobile_sam", threads=3, encoders=5, orchestrators=7)
    assert (plan.encoder.instances, plan.encoder.threads) == (5, 3)
    assert plan.decoder.threads == 3
    assert (plan.instances["mobile_sam"], plan.instances["mobile_sam_cached"]) == (7, 7)


@pytest.mark.parametrize("engine", ENGINES)
def test_plan_text_names_the_engines(engine):
    plan = make_plan(GPU, "mobile_sam", engine)
    assert f"encoder: {plan.encoder.engine}, " in str(plan)
    assert f"decoder: {plan.decoder.engine}, " in str(plan)
