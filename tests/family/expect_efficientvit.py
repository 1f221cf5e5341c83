"""expected_efficientvit.npz: answers of EfficientViT-SAM's code. `make_expected` calls it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from efficientsam.models.efficientvit import sam
from efficientsam.models.efficientvit.backbone import EfficientViTLargeBackbone
from efficientsam.models.nn.norm import set_norm_eps
from efficientsam.segment_anything import modeling

from tests.family.cases import Array, named
from tests.family.cases_efficientvit import (
    MODELS,
    framed,
    prompts_of,
    sampled_answers,
    sampled_embedding,
    sizes_of,
    state_of,
)


def assembled(encoder: Any, side: int) -> Any:
    """Return a model as the authors assemble it, but for the transforms of images, which use
    torchvision.
    """
    encoder.img_size = side
    transformer = modeling.TwoWayTransformer(depth=2, embedding_dim=256, mlp_dim=2048, num_heads=8)
    decoder = modeling.MaskDecoder(
        transformer_dim=256, transformer=transformer, num_multimask_outputs=3
    )
    return modeling.Sam(encoder, modeling.PromptEncoder(256, (64, 64), (1024, 1024), 16), decoder)


def authors_model(name: str, options: dict[str, Any]) -> Any:
    """Return a model with random weights."""
    sam.build_efficientvit_sam = assembled
    if not options:
        model = getattr(sam, f"efficientvit_sam_{name}")()
    else:
        widths = options["width_list"]
        stages = [f"stage{index}" for index in range(len(widths))]
        neck = sam.SamNeck(
            stages[:-4:-1],
            widths[:-4:-1],
            head_width=24,
            head_depth=2,
            expand_ratio=2,
            middle_op="fmb",
        )
        encoder = sam.EfficientViTSamImageEncoder(EfficientViTLargeBackbone(**options), neck)
        model = assembled(encoder, 2 ** (len(widths) + 4))
    set_norm_eps(model, 1e-6)  # as `create_efficientvit_sam_model` does
    return model.eval()


def arrays(answers: Callable[..., tuple[Array, Array]]) -> dict[str, Array]:
    """Run the authors' code on all cases and return the file's arrays; `answers` is the function
    of `make_expected`.
    """
    expected: dict[str, Array] = {}
    for name, options in MODELS.items():
        model = authors_model(name, options)
        tensors = {
            key: value
            for key, value in model.state_dict().items()
            if not key.endswith("num_batches_tracked")
        }
        shapes = np.array(
            [" ".join([key, *map(str, value.shape)]) for key, value in tensors.items()]
        )
        state = {key: torch.from_numpy(value) for key, value in state_of(shapes).items()}
        assert not model.load_state_dict(state, strict=False).unexpected_keys
        expected[f"{name}/shapes"] = shapes
        for size_hw in sizes_of(name):
            pixels, (height, width) = framed(name, size_hw)
            image = torch.from_numpy(pixels[:height, :width].copy()).permute(2, 0, 1).float()
            embedding = model.image_encoder(model.preprocess(image)[None])
            where, logits = named(size_hw), dict[str, Array]()
            expected[f"{name}/embedding/{where}"] = sampled_embedding(embedding[0].numpy())
            for prompt, fields in prompts_of(name).items():
                earlier = (
                    torch.from_numpy(logits[fields["refines"]][None, :1])
                    if "refines" in fields
                    else None
                )
                logits[prompt], expected[f"{name}/scores/{where}/{prompt}"] = answers(
                    model, embedding, fields, earlier
                )
                case = f"{where}/{prompt}"
                expected[f"{name}/logits/{case}"], expected[f"{name}/masks/{case}"] = (
                    sampled_answers(logits[prompt])
                )
    return expected
