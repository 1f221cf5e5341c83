"""Sequences of images with known masks: objects cut out of photographs move over other ones.

    for sequence in rendered(seed=0):
        sequence.frames[0]  # (480, 640, 3) uint8 RGB
        sequence.truth["cup"][0]  # (480, 640) bool

An object is cut out along its outline, in `outlines.json` for the page's samples, and drawn at the
position, height and angle between two `Key`s. Later actors of a scene lie on top of earlier ones:
masks are what is left to see. The background moves as well. A seed decides the hand's tremble and
the sensor's noise, and nothing else is random, so that a seed renders the same pixels again.
Objects of a folder that `benchmarks.objects` reads make further scenes.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from benchmarks.objects import LabelledObject, Mask, Picture, read_objects

SAMPLES = Path(__file__).resolve().parents[1] / "page" / "samples"
OUTLINES = Path(__file__).with_name("outlines.json")
SIZE_WH = (640, 480)
FRAMES = 16
TREMBLE_PIXELS = 0.7
"""Standard deviation of positions."""
NOISE = 3.0
"""Standard deviation of grey values."""
BACKGROUND_MARGIN = 1.7
"""Size of the background, of the frame's: what it can move by."""
PHOTOGRAPH_SCENES = 4
SHARE_OF_OBJECTS = (0.03, 0.25)
"""Least and largest share of a photograph that an object of a scene has."""


@dataclass(frozen=True)
class Key:
    """Place of an object at a time: its centre and height in pixels, its angle in degrees."""

    frame: float
    x: float
    y: float
    height: float
    angle: float = 0.0


@dataclass(frozen=True)
class Actor:
    """Object of a scene. One that is not `followed` only hides others."""

    name: str
    keys: tuple[Key, ...]
    followed: bool = True

    def at(self, frame: int) -> Key:
        """Return its place, between the keys before and after."""
        times = [key.frame for key in self.keys]
        values = [
            float(np.interp(frame, times, [getattr(key, name) for key in self.keys]))
            for name in ("x", "y", "height", "angle")
        ]
        return Key(frame, *values)


@dataclass(frozen=True)
class Scene:
    """What a sequence shows; the background moves by `pan_xy` pixels a frame."""

    name: str
    background: str
    actors: tuple[Actor, ...]
    pan_xy: tuple[float, float] = (4, 1)
    last_brightness: float = 1.0
    """Brightness of the last frame, of the first one's."""


@dataclass
class RenderedSequence:
    """Sequence: (H, W, 3) uint8 RGB frames, and per object its known masks by frame, (H, W) bool.
    A mask is empty where the object is hidden or gone.
    """

    name: str
    frames: list[Picture] = field(default_factory=list)
    truth: dict[str, dict[int, Mask]] = field(default_factory=dict)


def _moving(name: str, *keys: tuple[float, ...], followed: bool = True) -> Actor:
    return Actor(name, tuple(Key(*key) for key in keys), followed)


SCENES = (
    Scene(
        "translation",
        "rocket.jpg",
        (
            _moving("balloon", (0, 110, 150, 190), (15, 350, 200, 190)),
            _moving("saucer", (0, 520, 350, 170), (15, 260, 370, 170)),
        ),
    ),
    Scene(
        "scale",
        "desk.jpg",
        (
            _moving("orange", (0, 160, 150, 90), (15, 210, 220, 240)),
            _moving("pear", (0, 470, 260, 300), (15, 500, 230, 140)),
        ),
    ),
    Scene(
        "rotation",
        "balloons.jpg",
        (
            _moving("notebook", (0, 180, 220, 230), (15, 230, 250, 230, 120)),
            _moving("bananas", (0, 470, 240, 100), (15, 440, 220, 100, -150)),
        ),
    ),
    Scene(
        "occlusion",
        "cat.jpg",
        (
            _moving("apple", (0, 90, 260, 110), (15, 560, 240, 110)),
            _moving("lemon", (0, 560, 400, 100), (15, 60, 410, 100)),
            _moving("notebook", (0, 320, 230, 330), (15, 320, 240, 330), followed=False),
        ),
    ),
    Scene(
        "leaving",
        "still-life.jpg",
        (
            _moving("cup", (0, 420, 170, 150), (8, 760, 120, 150), (15, 900, 120, 150)),
            _moving("plate", (0, 220, 330, 170), (15, 300, 300, 180)),
        ),
    ),
    Scene(
        "background",
        "coffee.jpg",
        (
            _moving("succulent", (0, 210, 240, 180), (15, 220, 235, 185, 5)),
            _moving("teal balloon", (0, 470, 220, 210), (15, 460, 230, 210, -4)),
        ),
        pan_xy=(22, 9),
    ),
    Scene(
        "twins",
        "rocket.jpg",
        (
            _moving("orange", (0, 120, 200, 120), (15, 520, 260, 120, 40)),
            _moving("lemon", (0, 520, 140, 90), (15, 120, 150, 90)),
            _moving("orange", (0, 520, 300, 120), (15, 120, 230, 120), followed=False),
            _moving("lemon", (0, 420, 90, 90), (15, 60, 80, 90), followed=False),
        ),
    ),
    Scene(
        "fast",
        "desk.jpg",
        (
            _moving("teal balloon", (0, 90, 130, 150), (10, 540, 170, 150), (15, 250, 180, 150)),
            _moving("apple", (0, 560, 360, 90), (10, 110, 400, 90), (15, 330, 380, 90)),
        ),
        pan_xy=(10, 0),
    ),
    Scene(
        "dusk",
        "balloons.jpg",
        (
            _moving("cup", (0, 140, 150, 150), (15, 290, 190, 160, 15)),
            _moving("saucer", (0, 470, 320, 190), (15, 380, 300, 190, -10)),
        ),
        last_brightness=0.45,
    ),
)


def rendered(seed: int, objects: Path | None = None) -> Iterator[RenderedSequence]:
    """Render all scenes, and further ones with the objects of a folder if there is one."""
    for scene in SCENES:
        yield render(scene, seed)
    if objects is not None:
        labelled = read_objects(objects)
        sprites, scenes = photograph_scenes(labelled, seed)
        for scene in scenes:
            yield render(scene, seed, sprites)


def render(
    scene: Scene, seed: int, sprites: dict[str, Image.Image] | None = None, frames: int = FRAMES
) -> RenderedSequence:
    """Render a scene; `sprites` has pictures of further objects, RGBA, and of backgrounds, RGB."""
    known = sprites or {}
    generator = np.random.default_rng(seed)
    background = known.get(scene.background) or _photograph(SAMPLES / scene.background)
    wide = _covering(background, [int(side * BACKGROUND_MARGIN) for side in SIZE_WH])
    sequence = RenderedSequence(scene.name)
    for frame in range(frames):
        picture = _window(wide, scene.pan_xy, frame)
        masks: list[Mask] = []
        for actor in scene.actors:
            key = actor.at(frame)
            offset_xy = generator.normal(0, TREMBLE_PIXELS, 2)
            placed = _placed(known.get(actor.name) or sprite(actor.name), key, offset_xy)
            picture.paste(placed, mask=placed.getchannel("A"))
            mask = np.asarray(placed.getchannel("A")) > 127
            masks = [earlier & ~mask for earlier in masks] + [mask]
        values = np.asarray(picture, np.float64)
        values *= np.interp(frame, [0, max(frames - 1, 1)], [1, scene.last_brightness])
        values += generator.normal(0, NOISE, values.shape)
        sequence.frames.append(np.clip(np.rint(values), 0, 255).astype(np.uint8))
        for actor, mask in zip(scene.actors, masks, strict=True):
            if actor.followed:
                sequence.truth.setdefault(actor.name, {})[frame] = mask
    return sequence


def photograph_scenes(
    objects: Sequence[LabelledObject], seed: int
) -> tuple[dict[str, Image.Image], list[Scene]]:
    """Return scenes in which outlined objects move, grow and turn over other photographs."""
    generator = np.random.default_rng(seed)
    least, largest = SHARE_OF_OBJECTS
    fitting = [one for one in objects if least < one.mask.mean() < largest]
    chosen = generator.permutation(len(fitting))[: 3 * PHOTOGRAPH_SCENES]
    sprites: dict[str, Image.Image] = {}
    scenes = []
    for number in range(PHOTOGRAPH_SCENES):
        first, second, behind = (fitting[index] for index in chosen[3 * number :][:3])
        actors = []
        for labelled, x in ((first, 180), (second, 460)):
            name = f"{labelled.file.stem} at {int(labelled.point[0])},{int(labelled.point[1])}"
            sprites[name] = _cut_out(labelled.image, labelled.mask)
            width, height = sprites[name].size
            tall = 200 * min(1.0, height / width)
            dx, dy = generator.uniform(-110, 110), generator.uniform(-60, 60)
            grown, turned = generator.uniform(0.75, 1.3), generator.uniform(-30, 30)
            end = (15, x + dx, 240 + dy, tall * grown, turned)
            actors.append(_moving(name, (0, x, 240, tall), end))
        sprites[behind.file.name] = Image.fromarray(behind.image)
        pan_xy = tuple(generator.uniform(-8, 8, 2).tolist())
        scenes.append(
            Scene(
                f"photographs {number + 1}", behind.file.name, tuple(actors), (pan_xy[0], pan_xy[1])
            )
        )
    return sprites, scenes


@cache
def sprite(name: str) -> Image.Image:
    """Return an object of the page's samples, RGBA, cut to its outline."""
    entry = json.loads(OUTLINES.read_text())[name]
    photograph = _photograph(SAMPLES / entry["photo"])
    outline = [tuple(corner) for corner in entry["outline_xy"]]
    return _cut_out(np.asarray(photograph), polygon_mask(photograph.size, [outline]))


def polygon_mask(size_wh: tuple[int, int], outlines: Sequence[Sequence[tuple[float, ...]]]) -> Mask:
    """Return the mask inside of outlines, (H, W) bool."""
    picture = Image.new("1", size_wh)
    for outline in outlines:
        ImageDraw.Draw(picture).polygon(list(outline), fill=1)
    return np.array(picture, bool)


def _photograph(file: Path) -> Image.Image:
    return Image.open(file).convert("RGB")


def _cut_out(image: Picture, mask: NDArray[np.bool_]) -> Image.Image:
    picture = Image.fromarray(image)
    alpha = Image.fromarray(mask.astype(np.uint8) * 255)
    picture.putalpha(alpha)
    return picture.crop(alpha.getbbox())


def _covering(picture: Image.Image, size_wh: Sequence[int]) -> Image.Image:
    """Return a picture scaled so that it covers a size, and cut to it."""
    scale = max(size_wh[0] / picture.width, size_wh[1] / picture.height)
    larger = picture.resize(
        (round(picture.width * scale + 1), round(picture.height * scale + 1)),
        Image.Resampling.BICUBIC,
    )
    return larger.crop((0, 0, size_wh[0], size_wh[1]))


def _window(wide: Image.Image, pan_xy: tuple[float, float], frame: int) -> Image.Image:
    """Return the part of the background that a frame shows: it turns back at the edges."""
    corner = []
    for side, shown, step in zip(wide.size, SIZE_WH, pan_xy, strict=True):
        room = side - shown
        corner.append(room - abs(room - (abs(step) * frame) % (2 * room)))
    x, y = corner
    window = (1, 0, x, 0, 1, y)
    return wide.transform(SIZE_WH, Image.Transform.AFFINE, window, Image.Resampling.BICUBIC)


def _placed(picture: Image.Image, key: Key, offset_xy: NDArray[np.float64]) -> Image.Image:
    """Return an object on a transparent frame."""
    scale = key.height / picture.height
    small = picture.resize(
        (max(1, round(picture.width * scale)), max(1, round(key.height))), Image.Resampling.LANCZOS
    )
    cos, sin = np.cos(np.radians(key.angle)), np.sin(np.radians(key.angle))
    x, y = key.x + offset_xy[0], key.y + offset_xy[1]
    # From a pixel of the frame to one of the object: back to its centre, and turned back.
    inverse = (
        cos,
        sin,
        small.width / 2 - cos * x - sin * y,
        -sin,
        cos,
        small.height / 2 + sin * x - cos * y,
    )
    return small.transform(SIZE_WH, Image.Transform.AFFINE, inverse, Image.Resampling.BICUBIC)
