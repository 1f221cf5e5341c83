"""Following of objects through a series of images."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._client import Client
from mobile_sam_client._following import (
    LOOKS_DIFFERENT,
    Target,
    first_target,
    judge,
    next_target,
    prompts_for,
    small_mask,
    small_picture,
)
from mobile_sam_client._images import ImageInput, displayed_pixels
from mobile_sam_client._prompts import Prompt
from mobile_sam_client._results import Segmentation

EARLIER = "in doubt since an earlier image"


@dataclass(frozen=True)
class Followed:
    """An object on one image of a series."""

    segmentation: Segmentation
    """The mask that was found; `segmentation.mask` is (H, W) bool."""
    reasons: tuple[str, ...] = ()
    """Why the mask may be wrong, such as `other colours`; empty for a plausible one."""

    @property
    def needs_review(self) -> bool:
        """Whether a person should look at the mask."""
        return bool(self.reasons)


class Follower:
    """Follows objects from image to image, with masks from the service.

        follower = Follower(client)
        for found in follower.follow(["1.jpg", "2.jpg", "3.jpg"], {"boat": mask}):
            print(found["boat"].needs_review)

    The box of each object's last good mask and its innermost point, moved to where its pixels are
    found again, are the prompts for the next image. An answer needs review if its score, size,
    place or colours are implausible, or if the object looks less like on the last image than
    before. Implausible answers are no prompts for the next image. Once in doubt, an object needs
    review on all later images: correct the mask, and follow it again from there.
    All images must have the same size. Objects that leave a picture entirely are not found again.
    """

    def __init__(self, client: Client) -> None:
        """Use a client, which stays open."""
        self._client = client

    def follow(
        self, images: Iterable[ImageInput], objects: Mapping[str, BoolMask]
    ) -> Iterator[dict[str, Followed]]:
        """Yield the objects on each image after the first one, by name.

        Args:
            images: the images in their order; the first one has the given masks.
            objects: mask of each object on the first image, (H, W) bool, by name.

        Raises:
            ValueError: a mask is empty, or an image or a mask has another size than the first
                image.
            MobileSamError: the service did not answer.
        """
        remaining = iter(images)
        first = displayed_pixels(next(remaining))
        height, width = first.shape[:2]
        picture = small_picture(first)
        targets: dict[str, Target] = {}
        for name, mask in objects.items():
            if mask.dtype != bool or mask.shape != (height, width):
                expected = f"expected a mask of {height} x {width} bool"
                raise ValueError(f"{name}: {expected}, got {mask.dtype} of shape {mask.shape}")
            small = small_mask(mask)
            if not small.any():
                raise ValueError(f"{name}: the mask is empty, or too small to be followed")
            targets[name] = first_target(picture, small, _box(mask), int(mask.sum()))
        doubtful: set[str] = set()
        for image in remaining if targets else ():
            pixels = displayed_pixels(image)
            if pixels.shape[:2] != (height, width):
                got = f"{pixels.shape[1]} x {pixels.shape[0]}"
                name = f"{image}: " if isinstance(image, (str, os.PathLike)) else ""
                expected = f"{name}expected an image of {width} x {height} pixels"
                raise ValueError(f"{expected}, got {got}")
            picture = small_picture(pixels)
            questions = {
                name: prompts_for(target, picture, width, height)
                for name, target in targets.items()
            }
            prompts = [
                Prompt(box=question.box, pos_coords=question.pos_coords)
                for question in questions.values()
            ]
            answers = self._client.segment_many(image, prompts)
            followed = {}
            for (name, question), answer in zip(questions.items(), answers, strict=True):
                target, small = targets[name], small_mask(answer.mask)
                reasons = judge(
                    target, question, picture, mask=small, area=answer.area, score=answer.score
                )
                if not reasons and name in doubtful:
                    reasons = [EARLIER]
                elif reasons:
                    doubtful.add(name)
                if not reasons or reasons[0] in {LOOKS_DIFFERENT, EARLIER}:
                    targets[name] = next_target(
                        target,
                        question,
                        picture,
                        mask=small,
                        box_xyxy=answer.box_xyxy,
                        area=answer.area,
                    )
                followed[name] = Followed(answer, tuple(reasons))
            yield followed


def _box(mask: BoolMask) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
