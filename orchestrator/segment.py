"""Segmentation of objects: finds the image's embedding, runs the decoder, builds the answer."""

from __future__ import annotations

import orjson

from orchestrator import prompts
from orchestrator.answers import AnswerBuilder
from orchestrator.call import Call, Part
from orchestrator.costs import Workload
from orchestrator.pipeline import Pipeline
from orchestrator.problems import CostlyRequest

OUTPUTS = ("mask", "picture", "result")


def segment(pipeline: Pipeline, call: Call) -> tuple[Part, Part, Part]:
    """Return the bodies of the parts `mask`, `segmented_image` and `result`."""
    points_xy, labels = call.read("point_coords"), call.read("point_labels")
    candidates = bool(call.read_one("multimask_output", False))
    objects = 0 if points_xy is None or labels is None else len(points_xy)
    workload = Workload(
        objects,
        objects * (3 if candidates else 1),
        call.read_one("mask_format", b"json").decode(),
        call.read_one("segmented_image", b"none").decode(),
        bool(call.read_one("low_res_mask", False)),
        0 if labels is None else sum(prompts.count_points(labels)),
    )

    def check(size_hw: tuple[int, int]) -> None:
        if points_xy is not None and labels is not None:
            prompts.check_inside(points_xy, labels, size_hw)

    def check_cost(size_hw: tuple[int, int], new: bool) -> None:
        workload.check(size_hw, pipeline.max_answer_bytes)
        if call.light and not workload.is_light(size_hw[0] * size_hw[1], new=new):
            raise CostlyRequest

    image = pipeline.find(call, check, check_cost)
    result = {
        "image_id": image.image_id,
        "width": image.size_hw[1],
        "height": image.size_hw[0],
        "weights": pipeline.weights,
        "engine": pipeline.engine,
        "model_version": pipeline.version,
    }
    if points_xy is None or labels is None:
        return [], [], [orjson.dumps(result)]
    mask_inputs = prompts.mask_inputs(call.read("mask_input"), call.read("mask_input_object"), objects)
    answer = AnswerBuilder(image, workload, pipeline.max_answer_bytes)
    decoded = pipeline.decode(image, points_xy, labels, *mask_inputs, candidates=candidates)
    for index, (logits, scores) in enumerate(decoded):
        answer.add(index, logits, scores)
    return answer.encode(result)
