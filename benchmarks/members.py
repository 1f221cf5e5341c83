"""Published members of the SAM family, by their words: what builds them in the authors' code."""

from typing import Any

from tests.family import cases, cases_sam2

TINY_VIT = {"widths": (64, 128, 160, 320), "depths": (2, 2, 6, 2), "heads": (2, 4, 5, 10), "windows": (7, 7, 14, 7)}
TINY_HIERA, WIDE_HIERA = cases_sam2.MODELS["tiny"], {"width": 112, "heads": 2, "background": (14, 14)}
MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mobile_sam": ("mobile_sam", {**TINY_VIT, "expansion": 4}),
    "light_hq_sam": ("hq", {**TINY_VIT, "expansion": 4}),
    "efficientvit_sam_l0": ("efficientvit", {"name": "l0"}),
    "efficientvit_sam_l2": ("efficientvit", {"name": "l2"}),
    "efficientvit_sam_xl1": ("efficientvit", {"name": "xl1"}),
    "sam2.1_hiera_tiny": ("sam2", TINY_HIERA),
    "sam2.1_hiera_base_plus": (
        "sam2",
        {**TINY_HIERA, **WIDE_HIERA, "depths": (2, 3, 16, 3), "global_blocks": (12, 16, 20)},
    ),
    "sam2.1_hiera_large": ("sam2", {**cases_sam2.LARGE, "width": 144, "embedding": 256}),
    "sam_vit_b": ("sam", cases.VIT_B),
    "sam_hq_vit_b": ("hq", cases.VIT_B),
    "sam_vit_l": ("sam", {"width": 1024, "depth": 24, "heads": 16, "global_blocks": (5, 11, 17, 23)}),
    "sam_vit_h": ("sam", {"width": 1280, "depth": 32, "heads": 16, "global_blocks": (7, 15, 23, 31)}),
}
"""A key of `benchmarks.authors.BUILDERS`, and its options."""
