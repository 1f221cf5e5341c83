"""Plans of engines, instances and threads."""

from dataclasses import replace

import pytest

from utils.settings import Settings
from utils.triton.machine import Machine
from utils.triton.plan import (
    CONTEXT_BYTES,
    MIN_MASKS_BYTES,
    MOBILE_SAM_ENGINES,
    Plan,
    PlanError,
    make_plan,
)

LAPTOP = Machine(cores=2, bf16=False, gpu_memory_bytes=(), openvino=True, memory_bytes=2**35)
WITH_BF16 = replace(LAPTOP, bf16=True)
SERVER = replace(WITH_BF16, cores=16)
GPU = replace(SERVER, gpu_memory_bytes=(80 * 10**9,))
FLOAT32, SMALL = ("openvino", "onnxruntime"), ("onnxruntime",)
"""Engines of a large network whose masks have not been compared in bfloat16, and of a small one."""


@pytest.mark.parametrize(
    ("machine", "weights", "setting", "engines"),
    [
        (LAPTOP, MOBILE_SAM_ENGINES, "auto", ("openvino f32", "openvino f32")),
        (WITH_BF16, MOBILE_SAM_ENGINES, "auto", ("openvino bf16", "openvino f32")),
        (GPU, MOBILE_SAM_ENGINES, "auto", ("cuda f32", "cuda f32")),
        (
            replace(WITH_BF16, openvino=False),
            MOBILE_SAM_ENGINES,
            "auto",
            ("onnxruntime f32", "onnxruntime f32"),
        ),
        (WITH_BF16, SMALL, "auto", ("onnxruntime f32", "onnxruntime f32")),
        (WITH_BF16, FLOAT32, "auto", ("openvino f32", "openvino f32")),
        (
            replace(WITH_BF16, openvino=False),
            FLOAT32,
            "auto",
            ("onnxruntime f32", "onnxruntime f32"),
        ),
        (WITH_BF16, FLOAT32, "openvino-bf16", ("openvino bf16", "openvino f32")),
        (GPU, FLOAT32, "auto", ("cuda f32", "cuda f32")),
        (WITH_BF16, MOBILE_SAM_ENGINES, "onnxruntime", ("onnxruntime f32", "onnxruntime f32")),
        (WITH_BF16, SMALL, "openvino", ("openvino f32", "openvino f32")),
        (WITH_BF16, SMALL, "openvino-bf16", ("openvino bf16", "openvino f32")),
        (GPU, MOBILE_SAM_ENGINES, "openvino", ("openvino f32", "openvino f32")),
    ],
)
def test_engine_is_the_fastest_or_the_one_set_and_the_plans_text_names_it(
    machine, weights, setting, engines
):
    plan = make_plan(machine, weights, Settings(engine=setting))
    assert (plan.encoder.engine, plan.decoder.engine) == engines
    assert f"encoder: {engines[0]}, " in str(plan)
    assert f"decoder: {engines[1]}, " in str(plan)


@pytest.mark.parametrize(
    ("machine", "engine", "message"),
    [
        (LAPTOP, "openvino-bf16", "openvino-bf16 needs a CPU with AMX or AVX512-BF16"),
        (replace(LAPTOP, openvino=False), "openvino", "needs the package openvino"),
    ],
)
def test_unavailable_engine_is_an_error(machine, engine, message):
    with pytest.raises(PlanError, match=message):
        make_plan(machine, MOBILE_SAM_ENGINES, Settings(engine=engine))


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 6, 8, 16, 64])
@pytest.mark.parametrize("engine", ["auto", "onnxruntime"])
def test_threads_do_not_exceed_the_cores(cores, engine):
    plan = make_plan(replace(SERVER, cores=cores), MOBILE_SAM_ENGINES, Settings(engine=engine))
    for network in (plan.encoder, plan.decoder):
        assert 1 <= network.instances * network.threads <= cores


@pytest.mark.parametrize(
    ("machine", "encoder", "decoder", "orchestrators"),
    [(LAPTOP, (1, 2), (1, 2), [2, 2, 1, 1]), (SERVER, (2, 8), (4, 4), [3, 8, 2, 2])],
    ids=["two cores", "many cores"],
)
def test_plan_has_instances_and_threads_by_cores(machine, encoder, decoder, orchestrators):
    plan = make_plan(machine, MOBILE_SAM_ENGINES, Settings())
    assert (plan.encoder.instances, plan.encoder.threads) == encoder
    assert (plan.decoder.instances, plan.decoder.threads) == decoder
    assert list(plan.instances.values()) == orchestrators
    assert plan.decoder_batch < make_plan(GPU, MOBILE_SAM_ENGINES, Settings()).decoder_batch


def memory_of(plan: Plan) -> int:
    """Return the bytes of a GPU that the plan's processes may take."""
    networks = [plan.encoder, plan.decoder]
    if plan.own_decoder:
        networks.append(plan.own_decoder)
    return sum(network.instances * (CONTEXT_BYTES + network.memory_bytes) for network in networks)


@pytest.mark.parametrize(
    ("gigabytes", "encoders", "own_decoders", "known"),
    [
        pytest.param([8], 1, 0, 8, id="8 GB"),
        pytest.param([10], 1, 0, 8, id="a slice of 10 GB"),
        pytest.param([12], 1, 0, 8, id="12 GB"),
        pytest.param([16], 1, 2, 2, id="16 GB"),
        pytest.param([24], 2, 3, 3, id="24 GB"),
        pytest.param([80], 2, 8, 8, id="80 GB"),
        pytest.param([80, 80], 2, 4, 8, id="two of 80 GB"),
        pytest.param([80, 8], 1, 0, 8, id="of 80 and 8 GB"),
    ],
)
def test_plan_shares_out_the_memory_of_the_smallest_gpu(gigabytes, encoders, own_decoders, known):
    sizes = tuple(size * 10**9 for size in gigabytes)
    plan = make_plan(
        replace(SERVER, gpu_memory_bytes=sizes), MOBILE_SAM_ENGINES, Settings(), [28_000_000]
    )
    assert plan.gpu
    assert plan.encoder.instances == encoders
    assert (plan.own_decoder.instances if plan.own_decoder else 0) == own_decoders
    assert plan.instances["mobile_sam_cached"] == known
    assert memory_of(plan) <= min(sizes)
    assert plan.mask_memory_bytes >= MIN_MASKS_BYTES


def test_large_encoder_leaves_less_memory_for_masks():
    small, large = (
        make_plan(GPU, FLOAT32, Settings(), [size]) for size in (28_000_000, 26 * 10**8)
    )
    assert large.encoder.memory_bytes > small.encoder.memory_bytes + 2 * 26 * 10**8
    assert large.mask_memory_bytes <= small.mask_memory_bytes
    assert memory_of(large) <= GPU.gpu_memory_bytes[0]


def test_second_version_of_the_same_size_does_not_change_the_plan_for_a_gpu():
    plans = [make_plan(GPU, FLOAT32, Settings(), [28_000_000] * count) for count in (1, 2, 3)]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0] == make_plan(GPU, FLOAT32, Settings(), [28_000_000, 30_000_000])
    assert plans[0] != make_plan(GPU, FLOAT32, Settings(), [28_000_000, 26 * 10**8])


def test_large_encoder_has_one_instance_where_two_do_not_fit():
    machine = replace(GPU, gpu_memory_bytes=(20 * 10**9,))
    assert make_plan(machine, FLOAT32, Settings(), [28_000_000]).encoder.instances == 2
    plan = make_plan(machine, FLOAT32, Settings(), [26 * 10**8])
    assert plan.encoder.instances == 1
    assert memory_of(plan) <= 20 * 10**9
    assert make_plan(machine, FLOAT32, Settings(encoders=3)).encoder.instances == 3


@pytest.mark.parametrize(
    ("gigabytes", "encoder_bytes", "encoders"),
    [(32, 28e6, 4), (32, 26e8, 2), (16, 26e8, 1), (4, 26e8, 1), (3, 28e6, 2)],
    ids=[
        "MobileSAM",
        "ViT-H",
        "ViT-H in less memory",
        "ViT-H in too little",
        "MobileSAM in little memory",
    ],
)
def test_memory_limits_the_encoders(gigabytes, encoder_bytes, encoders):
    machine = replace(SERVER, cores=32, memory_bytes=gigabytes * 10**9)
    plan = make_plan(machine, FLOAT32, Settings(), [int(encoder_bytes)])
    assert (plan.encoder.instances, plan.encoder.threads) == (encoders, 32 // encoders)
    assert plan.instances["mobile_sam"] == encoders + 1
    assert (
        make_plan(machine, FLOAT32, Settings(encoders=5), [int(encoder_bytes)]).encoder.instances
        == 5
    )


def test_settings_override_the_plan():
    plan = make_plan(SERVER, MOBILE_SAM_ENGINES, Settings(threads=3, encoders=5, orchestrators=7))
    assert (plan.encoder.instances, plan.encoder.threads) == (5, 3)
    assert plan.decoder.threads == 3
    assert (plan.instances["mobile_sam"], plan.instances["mobile_sam_cached"]) == (7, 7)
