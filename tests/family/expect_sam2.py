"""expected_sam2.npz: answers of SAM 2's code, after comparing them with transformers' models.

`make_expected` calls it. EdgeTAM is SAM 2 with an encoder of timm.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import timm
import torch
from sam2.modeling.backbones.hieradet import Hiera
from sam2.modeling.backbones.image_encoder import FpnNeck, ImageEncoder
from sam2.modeling.position_encoding import PositionEmbeddingSine
from sam2.modeling.sam2_base import SAM2Base
from timm.models.repvit import repvit_m1
from transformers import (
    EdgeTamConfig,
    EdgeTamModel,
    EdgeTamVisionConfig,
    Sam2Config,
    Sam2HieraDetConfig,
    Sam2Model,
    Sam2VisionConfig,
    TimmWrapperConfig,
)
from transformers.models.timm_wrapper import modeling_timm_wrapper

from sam_onnx.layouts import STACKED_POINTS, authors_key, authors_layout
from tests.family.cases import Array, image, sampled_masks
from tests.family.cases_sam2 import (
    HEAD_WIDTH,
    LAYOUTS,
    MODELS,
    SIZE_HW,
    TENSORS,
    prompts_of,
    sam2_state,
    sampled,
)

PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MAX_LOGIT = 32.0
"""Limit of the logits that the image predictor returns for use as an earlier mask."""
LABELS = {"points": (1, 0), "box": (2, 3)}
COUNTER = "num_batches_tracked"
"""End of keys that only training needs."""
# Transformers would take them only with torchvision.
modeling_timm_wrapper.timm, modeling_timm_wrapper.requires_backends = timm, lambda *_: None


class RepVit(torch.nn.Module):
    """EdgeTAM's trunk."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        widths = tuple(options["width"] << stage for stage in range(4))
        self.body = repvit_m1(features_only=True, embed_dim=widths, depth=options["depths"])
        self.channel_list = list(widths[::-1])

    def forward(self, pixels: Any) -> list[Any]:
        """Return the results of the stages."""
        return list(self.body(pixels))


def hiera(options: dict[str, Any]) -> Any:
    """Return SAM 2's trunk."""
    return Hiera(
        embed_dim=options["width"],
        num_heads=options["heads"],
        stages=options["depths"],
        global_att_blocks=options["global_blocks"],
        window_pos_embed_bkg_spatial_size=options["background"],
        window_spec=options["windows"],
    )


def authors_model(state: dict[str, Array], options: dict[str, Any]) -> Any:
    """Return the authors' model with a state dict, without what videos need."""
    trunk = hiera(options) if "windows" in options else RepVit(options)
    width = options["embedding"]
    neck = FpnNeck(
        PositionEmbeddingSine(width),
        width,
        trunk.channel_list,
        fpn_interp_model="nearest",
        fpn_top_down_levels=[2, 3],
    )
    stability = {"via_stability": True, "stability_delta": 0.05, "stability_thresh": 0.98}
    model = SAM2Base(
        ImageEncoder(trunk, neck, scalp=1),
        SimpleNamespace(),
        SimpleNamespace(),
        image_size=1024,
        use_high_res_features_in_sam=True,
        iou_prediction_use_sigmoid=True,
        pred_obj_scores=True,
        pred_obj_scores_mlp=True,
        use_obj_ptrs_in_encoder=True,
        sam_mask_decoder_extra_args={
            f"dynamic_multimask_{key}": value for key, value in stability.items()
        },
    )
    found = model.load_state_dict(
        {key: torch.from_numpy(value) for key, value in state.items()}, strict=False
    )
    assert not found.unexpected_keys
    videos = ("maskmem_", "no_mem_pos_", "no_obj_", "obj_ptr_", "mask_downsample.")
    assert all(key.startswith(videos) or key.endswith(COUNTER) for key in found.missing_keys)
    return model.eval()


def transformers_model(
    state: dict[str, Array], options: dict[str, Any]
) -> tuple[Any, list[tuple[str, str]]]:
    """Return transformers' model with the same tensors, and its keys with Segment Anything's
    keys.
    """
    width, embedding = options["width"], options["embedding"]
    channels = [width << stage for stage in range(4)]
    shared: dict[str, Any] = {"backbone_channel_list": channels[::-1], "fpn_hidden_size": embedding}
    heads: dict[str, Any] = {
        "prompt_encoder_config": {"hidden_size": embedding},
        "mask_decoder_config": {"hidden_size": embedding, "iou_head_hidden_dim": HEAD_WIDTH},
    }
    model: Any
    if "windows" in options:
        backbone = Sam2HieraDetConfig(
            hidden_size=width,
            num_attention_heads=options["heads"],
            window_positional_embedding_background_size=list(options["background"]),
            blocks_per_stage=list(options["depths"]),
            embed_dim_per_stage=channels,
            num_attention_heads_per_stage=[options["heads"] << stage for stage in range(4)],
            window_size_per_stage=list(options["windows"]),
            global_attention_blocks=list(options["global_blocks"]),
        )
        model = Sam2Model(
            Sam2Config(vision_config=Sam2VisionConfig(backbone_config=backbone, **shared), **heads)
        )
    else:
        sizes = {"embed_dim": channels, "depth": list(options["depths"])}
        repvit = TimmWrapperConfig(
            architecture="repvit_m1", model_args={"features_only": True, **sizes}
        )
        vision = EdgeTamVisionConfig(backbone_config=repvit, **shared)
        model = EdgeTamModel(EdgeTamConfig(vision_config=vision, **heads))
    keys = [(key, authors_key(key)) for key in model.state_dict() if not key.endswith(COUNTER)]
    tensors = authors_layout(state)
    tensors[STACKED_POINTS] = np.concatenate(
        [tensors[STACKED_POINTS.replace("w", f"{kind}.w")] for kind in range(4)]
    )
    found = model.load_state_dict(
        {key: torch.from_numpy(tensors[authors]) for key, authors in keys}, strict=False
    )
    assert all(key.endswith(COUNTER) for key in found.missing_keys)
    return model.eval(), keys


def answers(
    model: Any, embedding: list[Any], prompt: dict[str, Any], earlier: Any
) -> tuple[Array, Array]:
    """Return the authors' low-resolution masks (4, 256, 256) and scores (4,): the single mask
    and the candidates.
    """
    coords = [*prompt.get("points", []), *np.reshape(prompt.get("box", []), (-1, 2)).tolist()]
    labels = [label for kind in LABELS if kind in prompt for label in LABELS[kind]][: len(coords)]
    inputs = {
        "point_coords": torch.tensor([coords]).float(),
        "point_labels": torch.tensor([labels]),
    }
    *features, last = embedding
    found = [
        model._forward_sam_heads(last, inputs, earlier, features, several)
        for several in (False, True)
    ]
    masks, scores = (torch.cat([each[index][0] for each in found]) for index in (0, 2))
    return masks.numpy(), scores.numpy()


def other_answers(
    model: Any, embedding: list[Any], prompt: dict[str, Any], earlier: Any
) -> tuple[Array, Array]:
    """Return transformers' answers in the same form."""
    given: dict[str, Any] = {"image_embeddings": embedding, "input_masks": earlier}
    if points := prompt.get("points"):
        given["input_points"] = torch.tensor([[points]]).float()
        given["input_labels"] = torch.tensor([[LABELS["points"][: len(points)]]])
    given |= {"input_boxes": torch.tensor([[prompt["box"]]]).float()} if "box" in prompt else {}
    found = [model(**given, multimask_output=several) for several in (False, True)]
    masks, scores = (
        torch.cat([getattr(each, name)[0, 0] for each in found])
        for name in ("pred_masks", "iou_scores")
    )
    return masks.numpy(), scores.numpy()


def arrays(check_close: Callable[[Array, Array, str], None]) -> dict[str, Array]:
    """Run both libraries on all cases and return the file's arrays."""
    expected: dict[str, Array] = {}
    for name, options in MODELS.items():
        state = sam2_state(**options)
        model, (other, keys) = authors_model(state, options), transformers_model(state, options)
        expected |= {f"{name}/keys": np.array(keys)} if name in LAYOUTS else {}
        pixels = (image(SIZE_HW) / 255 - np.array(PIXEL_MEAN)) / np.array(PIXEL_STD)
        framed = torch.from_numpy(pixels.transpose(2, 0, 1)[None]).float()
        embedding = model.forward_image(framed)["backbone_fpn"]
        embedding[2] = embedding[2] + model.no_mem_embed.reshape(1, -1, 1, 1)
        for key, tensor, same in zip(
            TENSORS, embedding, other.get_image_embeddings(framed), strict=True
        ):
            check_close(same.numpy(), tensor.numpy(), f"{name} {key}")
            expected[f"{name}/{key}"] = sampled(tensor[0].numpy())
        logits: dict[str, Array] = {}
        for prompt, fields in prompts_of(name).items():
            earlier = (
                torch.from_numpy(logits[fields["refines"]][None, :1])
                if "refines" in fields
                else None
            )
            earlier = earlier if earlier is None else earlier.clamp(-MAX_LOGIT, MAX_LOGIT)
            masks, scores = answers(model, embedding, fields, earlier)
            same = other_answers(other, embedding, fields, earlier)
            for found, wanted in zip(same, (masks, scores), strict=True):
                check_close(found, wanted, f"{name} {prompt}")
            logits[prompt] = masks
            expected[f"{name}/logits/{prompt}"], expected[f"{name}/masks/{prompt}"] = sampled_masks(
                masks
            )
            expected[f"{name}/scores/{prompt}"] = scores
    return expected
