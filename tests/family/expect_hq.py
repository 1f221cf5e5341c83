"""expected_hq.npz: answers of SAM-HQ's code, after comparing them with transformers' `SamHQModel`.

`make_expected` calls it.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from segment_anything_hq import modeling
from transformers import SamHQConfig, SamHQModel

from sam_onnx.layouts import authors_key
from tests.family.cases import PROMPTS, SIZES_HW, Array, image, named
from tests.family.cases_hq import MODELS, sampled, sampled_masks, state_of

Answers = Callable[..., tuple[Array, Array]]


def authors_model(state: dict[str, Array], options: dict[str, Any]) -> Any:
    """Return the authors' `Sam` with a state dict."""
    width = options.get("embedding", 256)
    if "width" in options:
        early = options["width"]
        encoder = modeling.ImageEncoderViT(
            embed_dim=early,
            depth=options["depth"],
            num_heads=options["heads"],
            norm_layer=lambda size: torch.nn.LayerNorm(size, eps=1e-6),
            out_chans=width,
            use_rel_pos=True,
            window_size=14,
            global_attn_indexes=options["global_blocks"],
        )
    else:
        early = options["widths"][2]
        encoder = modeling.TinyViT(
            img_size=1024,
            num_classes=0,
            embed_dims=options["widths"],
            depths=options["depths"],
            num_heads=options["heads"],
            window_sizes=options["windows"],
            mlp_ratio=options["expansion"],
            mbconv_expand_ratio=options["expansion"],
        )
    decoder = modeling.MaskDecoderHQ(
        transformer_dim=width,
        transformer=modeling.TwoWayTransformer(
            depth=2, embedding_dim=width, mlp_dim=options.get("transformer_mlp", 2048), num_heads=8
        ),
        iou_head_hidden_dim=width,
        vit_dim=early,
    )
    model = modeling.Sam(
        encoder, modeling.PromptEncoder(width, (64, 64), (1024, 1024), 16), decoder
    )
    found = model.load_state_dict(
        {key: torch.from_numpy(value) for key, value in state.items()}, strict=False
    )
    unused = ("num_batches_tracked", "attention_bias_idxs", "norm_head.weight", "norm_head.bias")
    assert not found.unexpected_keys
    assert all(key.endswith(unused) for key in found.missing_keys)
    return model.eval()


def transformers_model(
    state: dict[str, Array], options: dict[str, Any]
) -> tuple[Any, list[tuple[str, str]]]:
    """Return transformers' model with the same tensors, and its keys with the authors' keys."""
    width, embedding = options["width"], options.get("embedding", 256)
    config = SamHQConfig(
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
            "vit_dim": width,
        },
    )
    model = SamHQModel(config)
    keys = [(key, authors_key(key)) for key in model.state_dict()]
    model.load_state_dict({key: torch.from_numpy(state[authors]) for key, authors in keys})
    model.mask_decoder.transformer.register_forward_hook(_keep_output, with_kwargs=True)
    return model.eval(), keys


def _keep_output(module: Any, arguments: Any, given: dict[str, Any], result: Any) -> None:
    """Put the transformer's output where transformers' decoder reads it.

    It up-samples the transformer's input, with rows and columns exchanged.
    """
    image = given["image_embeddings"]
    image.copy_(result[1].transpose(2, 3).reshape(image.shape).transpose(2, 3))


def features_of(model: Any, embedding: Any, early: Any) -> Any:
    """Return the features (1, C, 256, 256), which the authors' decoder computes for every
    prompt.
    """
    decoder = model.mask_decoder
    return decoder.embedding_encoder(embedding) + decoder.compress_vit_feat(
        early[0].permute(0, 3, 1, 2)
    )


def with_features(model: Any, early: Any, features: Any, *, hq_only: bool) -> Any:
    """Return a model whose decoder returns all four masks; the authors' returns the first or the
    best.
    """
    authors = model.mask_decoder

    def predict_masks(**given: Any) -> Any:
        masks, scores = authors.predict_masks(**given, hq_features=features)
        masks = masks[:, 4:].expand(-1, 4, -1, -1) if hq_only else masks[:, :4] + masks[:, 4:]
        for several, index in ((False, 0), (True, 1 + int(scores[0, 1:].argmax()))):
            found = authors(
                **given, multimask_output=several, hq_token_only=hq_only, interm_embeddings=early
            )
            assert torch.equal(found[0][0, 0], masks[0, index])
            assert torch.equal(found[1][0, 0], scores[0, index])
        return masks, scores

    decoder = SimpleNamespace(predict_masks=predict_masks)
    return SimpleNamespace(prompt_encoder=model.prompt_encoder, mask_decoder=decoder)


def arrays(
    answers: Answers, other_answers: Answers, check_close: Callable[[Array, Array, str], None]
) -> dict[str, Array]:
    """Run both libraries on all cases and return the file's arrays; the functions are those of
    `make_expected`.
    """
    expected: dict[str, Array] = {}
    for name, options in MODELS.items():
        state = state_of(options)
        model = authors_model(state, options)
        other, keys = transformers_model(state, options) if "width" in options else (None, [])
        expected |= {"keys": np.array(keys)} if name == "vit" else {}
        for size_hw in SIZES_HW:
            pixels = (
                torch.from_numpy(image(size_hw))
                .permute(2, 0, 1)
                .float()[:, : size_hw[0], : size_hw[1]]
            )
            framed, where = model.preprocess(pixels)[None], named(size_hw)
            embedding, early = model.image_encoder(framed)
            features = features_of(model, embedding, early)
            parts = sampled(embedding[0].numpy(), features[0].numpy())
            expected[f"{name}/embedding/{where}"], expected[f"{name}/features/{where}"] = parts
            if other:
                others = other.get_image_embeddings(framed)
                check_close(others[0].numpy(), embedding.numpy(), f"{name} {size_hw}")
                check_close(others[1][0].numpy(), early[0].numpy(), f"{name} {size_hw} early")
            found: dict[str, tuple[Array, Array]] = {}
            both, alone = (
                with_features(model, early, features, hq_only=hq_only) for hq_only in (False, True)
            )
            only, _ = answers(alone, embedding, PROMPTS["click"], None)
            expected[f"{name}/only/{where}"] = sampled_masks(only[0])[0]
            for prompt, fields in PROMPTS.items():
                earlier = (
                    torch.from_numpy(found[fields["refines"]][0][None, :1])
                    if "refines" in fields
                    else None
                )
                found[prompt] = masks, scores = answers(both, embedding, fields, earlier)
                if other:
                    other_masks, other_scores = other_answers(
                        partial(other, intermediate_embeddings=early), embedding, fields, earlier
                    )
                    order = [0, *(1 + np.argsort(-scores[1:]))]  # transformers sorts the candidates
                    check_close(other_masks, masks[order], f"{name} {size_hw} {prompt}")
                    check_close(other_scores, scores[order], f"{name} {size_hw} {prompt}")
            every = np.stack([masks for masks, _ in found.values()])
            expected[f"{name}/logits/{where}"], expected[f"{name}/masks/{where}"] = sampled_masks(
                every
            )
            expected[f"{name}/scores/{where}"] = np.stack([scores for _, scores in found.values()])
    return expected
