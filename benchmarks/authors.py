"""The authors' PyTorch code of a member of the SAM family, as a `benchmarks.workers` process.

`python -m benchmarks.authors MEMBER WEIGHTS` makes random weights, writes them to the file WEIGHTS, and then encodes
and clicks. Runs in the environment of `make env-family`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.members import MEMBERS
from benchmarks.workers import CLICK, ENCODE, serve
from tests.family import make_expected  # first: it has stand-ins for what the others' packages import
from tests.family.cases import noisy_state, sam_shapes
from tests.family.cases_hq import state_of
from tests.family.cases_sam2 import sam2_state

# isort: split
from tests.family import expect_efficientvit, expect_hq, expect_sam2

CLICK_XY = (512.0, 342.0)


class Sam:
    """Segment Anything, and relatives with its parts."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._pixels = noise_image(model.image_encoder.img_size)
        self._click = torch.tensor([[CLICK_XY]]), torch.tensor([[1]])

    def encode(self) -> None:
        """Keep an embedding; SAM-HQ's encoders also return early features."""
        found = self.model.image_encoder(self.model.preprocess(self._pixels.float())[None])
        self._embedding, self._early = found if isinstance(found, tuple) else (found, None)

    def click(self) -> Any:
        """Return the single mask and its score."""
        prompts, decoder = self.model.prompt_encoder, self.model.mask_decoder
        hq = {"hq_token_only": False, "interm_embeddings": self._early} if hasattr(decoder, "hf_token") else {}
        prompt = prompts(points=self._click, boxes=None, masks=None)
        return decoder(self._embedding, prompts.get_dense_pe(), *prompt, multimask_output=False, **hq)


class Sam2:
    """SAM 2 for single images, with the steps of the authors' image predictor."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._pixels = noise_image(model.image_size)
        self._click = {"point_coords": torch.tensor([[CLICK_XY]]), "point_labels": torch.tensor([[1]])}

    def encode(self) -> None:
        """Keep an embedding."""
        mean, std = (torch.tensor(each)[:, None, None] for each in (expect_sam2.PIXEL_MEAN, expect_sam2.PIXEL_STD))
        pixels = (self._pixels.float() / 255 - mean) / std
        *features, last = self.model.forward_image(pixels[None])["backbone_fpn"]
        self._embedding = last + self.model.no_mem_embed.reshape(1, -1, 1, 1), features

    def click(self) -> Any:
        """Return the single mask, its score, and what videos need."""
        last, features = self._embedding
        return self.model._forward_sam_heads(last, self._click, None, features, multimask_output=False)


def noise_image(side: int) -> Any:
    """Return (3, side, side) uint8."""
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, side, side), dtype=np.uint8))


def with_noise(model: Any) -> Any:
    """Return a model with weights for which activations keep about unit size."""
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items() if value.is_floating_point()}
    state = {key: torch.from_numpy(value) for key, value in noisy_state(shapes).items()}
    for key in (key for key in state if key.endswith("running_var")):
        state[key] += 1
    model.load_state_dict(state, strict=False)
    return model


def mobile_sam(options: dict[str, Any]) -> Sam:
    """Return MobileSAM: its encoder as in SAM-HQ's package, and Segment Anything's decoder."""
    encoder = expect_hq.authors_model(state_of(options), options).image_encoder
    return Sam(with_noise(expect_efficientvit.assembled(encoder, encoder.img_size)))


BUILDERS: dict[str, Callable[[dict[str, Any]], Sam | Sam2]] = {
    "mobile_sam": mobile_sam,
    "efficientvit": lambda options: Sam(with_noise(expect_efficientvit.authors_model(options["name"], {}))),
    "hq": lambda options: Sam(expect_hq.authors_model(state_of(options), options)),
    "sam": lambda options: Sam(make_expected.authors_model(noisy_state(sam_shapes(**options)), options)),
    "sam2": lambda options: Sam2(expect_sam2.authors_model(sam2_state(**options), options)),
}


def main() -> None:
    """Run the command."""
    torch.set_grad_enabled(False)
    member, weights = sys.argv[1:]
    builder, options = MEMBERS[member]
    runs = BUILDERS[builder](options)
    torch.save(runs.model.state_dict(), weights)
    serve({ENCODE: runs.encode, CLICK: runs.click})


if __name__ == "__main__":
    main()
