"""Compare answers of the authors' code with the stored ones, and those of small models with
transformers first.

Runs in the environment of `make env-family`, by `make family-test`; with `--write`, it stores the
answers. Those of segment-anything, `expected.npz`, are made here.
"""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch

# Before the stand-in for torchvision, which it would try to use.
from transformers import (
    SamConfig,
    SamModel,
)

from sam_onnx.layouts import authors_key
from tests.family.cases import (
    EXPECTED,
    MODELS,
    PROMPTS,
    Array,
    image,
    named,
    noisy_state,
    sam_shapes,
    sampled,
    sampled_masks,
    sizes_of,
)

MAX_DIFFERENCE = 1e-4
"""Relative L2 distance between both libraries, and from a stored array; the graphs may differ by
ten times as much."""
MAX_CHANGED_BITS = 1e-3
"""Part of the pixels of a stored array of masks."""


class _AnyModule(ModuleType):
    """Stand-in for torchvision, and what needs it, of which the models use nothing."""

    def __getattr__(self, name: str) -> Any:
        return None


VISION = ("ops", "ops.boxes", "ops.misc", "transforms", "transforms.functional")
for name in ("torchvision", *(f"torchvision.{part}" for part in VISION), "timm.data"):
    sys.modules[name] = _AnyModule(name)
# isort: split
from segment_anything import modeling  # noqa: E402

from tests.family import expect_efficientvit, expect_hq, expect_sam2  # noqa: E402


def authors_model(state: dict[str, Array], options: dict[str, Any]) -> Any:
    """Return segment-anything's `Sam` with a state dict."""
    width, embedding = options["width"], options.get("embedding", 256)
    transformer = modeling.TwoWayTransformer(
        depth=2, embedding_dim=embedding, mlp_dim=options.get("transformer_mlp", 2048), num_heads=8
    )
    encoder = modeling.ImageEncoderViT(
        embed_dim=width,
        depth=options["depth"],
        num_heads=options["heads"],
        norm_layer=lambda size: torch.nn.LayerNorm(size, eps=1e-6),
        out_chans=embedding,
        use_rel_pos=True,
        window_size=14,
        global_attn_indexes=options["global_blocks"],
    )
    model = modeling.Sam(
        encoder,
        modeling.PromptEncoder(embedding, (64, 64), (1024, 1024), 16),
        modeling.MaskDecoder(
            transformer_dim=embedding,
            transformer=transformer,
            iou_head_hidden_dim=embedding,
            num_multimask_outputs=3,
        ),
    )
    model.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()})
    return model.eval()


def transformers_model(
    state: dict[str, Array], options: dict[str, Any]
) -> tuple[Any, list[tuple[str, str]]]:
    """Return transformers' model with the same tensors, and its keys with the authors' keys."""
    width, embedding = options["width"], options.get("embedding", 256)
    config = SamConfig(
        vision_config={
            "hidden_size": width,
            "num_hidden_layers": options["depth"],
            "num_attention_heads": options["heads"],
            "global_attn_indexes": list(options["global_blocks"]),
            "output_channels": embedding,
            "mlp_dim": 4 * width,
            "num_pos_feats": embedding // 2,
        },
        prompt_encoder_config={"hidden_size": embedding},
        mask_decoder_config={
            "hidden_size": embedding,
            "mlp_dim": options.get("transformer_mlp", 2048),
            "iou_head_hidden_dim": embedding,
        },
    )
    model = SamModel(config)
    keys = [(key, authors_key(key)) for key in model.state_dict()]
    model.load_state_dict({key: torch.from_numpy(state[authors]) for key, authors in keys})
    return model.eval(), keys


def answers(
    model: Any, embedding: Any, prompt: dict[str, Any], earlier: Any
) -> tuple[Array, Array]:
    """Return the authors' low-resolution masks (4, 256, 256) and scores (4,)."""
    points, box = _points(prompt), prompt.get("box")
    sparse, dense = model.prompt_encoder(
        points=points, boxes=box and torch.tensor([box]).float(), masks=earlier
    )
    masks, scores = model.mask_decoder.predict_masks(
        image_embeddings=embedding,
        image_pe=model.prompt_encoder.get_dense_pe(),
        sparse_prompt_embeddings=sparse,
        dense_prompt_embeddings=dense,
    )
    return masks[0].numpy(), scores[0].numpy()


def other_answers(
    model: Any, embedding: Any, prompt: dict[str, Any], earlier: Any
) -> tuple[Array, Array]:
    """Return transformers' answers in the same form."""
    points, box = _points(prompt), prompt.get("box")
    given: dict[str, Any] = {"image_embeddings": embedding, "input_masks": earlier}
    given |= {"input_points": points[0][None], "input_labels": points[1][None]} if points else {}
    given |= {"input_boxes": torch.tensor([[box]]).float()} if box else {}
    found = [model(**given, multimask_output=several) for several in (False, True)]
    masks, scores = (
        torch.cat([getattr(each, name)[0, 0] for each in found])
        for name in ("pred_masks", "iou_scores")
    )
    return masks.numpy(), scores.numpy()


def _points(prompt: dict[str, Any]) -> Any:
    if not (points := prompt.get("points")):
        return None
    return torch.tensor([points]).float(), torch.tensor([[1] + [0] * (len(points) - 1)])


def check_close(found: Array, wanted: Array, what: str) -> None:
    """Check that both libraries agree; raise AssertionError."""
    distance = relative_l2(found, wanted)
    assert distance <= MAX_DIFFERENCE, (
        f"{what}: transformers differs from segment-anything by {distance:.1e}"
    )


def relative_l2(found: Array, wanted: Array) -> float:
    """Return the relative L2 distance."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def is_stored(found: Array, stored: Array) -> bool:
    """Return whether an array is the stored one but for rounding."""
    if stored.dtype.kind == "U" or found.shape != stored.shape:
        return np.array_equal(found, stored)
    if stored.dtype == np.uint8:
        return bool(np.unpackbits(np.bitwise_xor(found, stored)).mean() <= MAX_CHANGED_BITS)
    return relative_l2(found, stored) <= MAX_DIFFERENCE


def arrays() -> dict[str, Array]:
    """Run both libraries on all cases and return `expected.npz`."""
    expected: dict[str, Array] = {}
    for name, options in MODELS.items():
        state = noisy_state(sam_shapes(**options))
        model = authors_model(state, options)
        other, keys = transformers_model(state, options) if name == "small" else (None, [])
        expected |= {"keys": np.array(keys)} if other else {}
        for size_hw in sizes_of(name):
            pixels = (
                torch.from_numpy(image(size_hw))
                .permute(2, 0, 1)
                .float()[:, : size_hw[0], : size_hw[1]]
            )
            framed = model.preprocess(pixels)[None]
            embedding = model.image_encoder(framed)
            if other:
                check_close(
                    other.get_image_embeddings(framed).numpy(),
                    embedding.numpy(),
                    f"{name} {size_hw}",
                )
            where = named(size_hw)
            logits: dict[str, Array] = {}
            expected[f"{name}/embedding/{where}"] = sampled(embedding[0].numpy())
            for prompt, fields in PROMPTS.items():
                earlier = (
                    torch.from_numpy(logits[fields["refines"]][None, :1])
                    if "refines" in fields
                    else None
                )
                masks, scores = answers(model, embedding, fields, earlier)
                same = (
                    other_answers(other, embedding, fields, earlier) if other else (masks, scores)
                )
                for found, wanted in zip(same, (masks, scores), strict=True):
                    check_close(found, wanted, f"{name} {size_hw} {prompt}")
                logits[prompt] = masks
                case = f"{where}/{prompt}"
                expected[f"{name}/logits/{case}"], expected[f"{name}/masks/{case}"] = sampled_masks(
                    masks
                )
                expected[f"{name}/scores/{case}"] = scores
    return expected


def main() -> None:
    """Compare all answers with the stored ones, or store them."""
    torch.set_grad_enabled(False)
    files = {
        "expected": arrays(),
        "expected_efficientvit": expect_efficientvit.arrays(answers),
        "expected_hq": expect_hq.arrays(answers, other_answers, check_close),
        "expected_sam2": expect_sam2.arrays(check_close),
    }
    for name, found in files.items():
        path = EXPECTED.with_stem(name)
        if "--write" in sys.argv:
            np.savez_compressed(path, **found)
        with np.load(path) as file:
            stored = dict(file)
        differ = [
            key
            for key, array in found.items()
            if key not in stored or not is_stored(array, stored[key])
        ]
        if differ or stored.keys() != found.keys():
            command = f"{sys.executable} -m tests.family.make_expected --write"
            sys.exit(
                f"error: other answers than in {path} ({', '.join(differ)}): `{command}` stores"
                " them"
            )
        print(f"{path}: {len(found)} arrays")


if __name__ == "__main__":
    main()
