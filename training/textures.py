"""Bank of grey textures (fractal noise, fur, leaves, stripes, bricks, patches), and materials made from them."""

import cv2
import numpy as np
from numpy.typing import NDArray

SIDE = 512
Rng = np.random.Generator
Grey = NDArray[np.uint8]
Image = NDArray[np.uint8]


def stretch(values: NDArray[np.float32]) -> Grey:
    """Scale a real (H, W) array to uint8, with the 1st to 99th percentile at 0 to 255."""
    low, high = np.percentile(values[::4, ::4], (1, 99))
    scaled: Grey = np.clip((values - low) * (255 / max(high - low, 1e-6)), 0, 255).astype(np.uint8)
    return scaled


def spectrum_noise(
    rng: Rng, side: int, power: float, elongation: float = 1.0, band: float = 0.0
) -> NDArray[np.float32]:
    """Return periodic noise with amplitudes proportional to frequency ** -power, (side, side) float32; `elongation`
    stretches it along x, `band` > 0 keeps only frequencies around `band` cycles per picture."""
    freq_y = np.fft.fftfreq(side)[:, None] * side
    freq_x = np.fft.rfftfreq(side)[None] * side
    radius = np.sqrt(freq_y**2 + (freq_x * elongation) ** 2)
    radius[0, 0] = 1
    amplitude = np.exp(-(((radius - band) / (0.25 * band)) ** 2)) if band else radius**-power
    amplitude[0, 0] = 0
    spectrum = amplitude * np.exp(2j * np.pi * rng.random(radius.shape))
    values: NDArray[np.float32] = np.fft.irfft2(spectrum, (side, side)).astype(np.float32)
    values /= values.std() + 1e-9
    return values


def _leaves(rng: Rng) -> Grey:
    """Draw dead leaves: opaque ellipses and polygons of power-law size, as in natural pictures."""
    canvas = np.full((SIDE, SIDE), int(rng.integers(256)), np.uint8)
    smallest, kind = rng.uniform(3, 10), rng.random()
    for _ in range(int(rng.integers(500, 2500))):
        size = smallest / max(rng.random(), 0.02) ** rng.uniform(0.5, 0.8)
        centre = (int(rng.integers(SIDE)), int(rng.integers(SIDE)))
        grey = int(rng.integers(256))
        if kind < 0.7:
            axes = (max(int(size), 1), max(int(size * rng.uniform(0.2, 1)), 1))
            cv2.ellipse(canvas, centre, axes, rng.uniform(0, 180), 0, 360, (grey,), -1, cv2.LINE_AA)
        else:
            angles = np.sort(rng.random(5)) * 2 * np.pi
            corners = np.stack([np.cos(angles), np.sin(angles)], 1) * size + centre
            cv2.fillPoly(canvas, [corners.astype(np.int32)], (grey,), cv2.LINE_AA)
    return canvas


def _strokes(rng: Rng) -> Grey:
    """Draw grass, hair, straw or twigs: thousands of strokes around one direction."""
    canvas = np.full((SIDE, SIDE), int(rng.integers(60, 200)), np.uint8)
    spread, length, thick = rng.uniform(0.05, 1.5), rng.uniform(8, 60), int(rng.integers(1, 4))
    count = int(rng.integers(1500, 5000))
    starts = rng.uniform(0, SIDE, (count, 2))
    angles = rng.normal(0, spread, count)
    steps = np.stack([np.cos(angles), np.sin(angles)], 1) * (length * rng.uniform(0.4, 1.2, (count, 1)))
    for start, end, grey in zip(starts, starts + steps, rng.integers(0, 256, count), strict=True):
        cv2.line(canvas, start.astype(int).tolist(), end.astype(int).tolist(), (int(grey),), thick, cv2.LINE_AA)
    return canvas


def _cells(rng: Rng) -> Grey:
    """Draw pebbles, scales or crackle: distances to scattered points, or one grey per cell."""
    seeds = np.ones((SIDE, SIDE), np.uint8)
    count = int(rng.integers(60, 900))
    seeds[rng.integers(0, SIDE, count), rng.integers(0, SIDE, count)] = 0
    distance, label = cv2.distanceTransformWithLabels(seeds, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    greys = rng.integers(0, 256, int(label.max()) + 1).astype(np.float32)[label]
    return stretch(distance / distance.max() * rng.uniform(0, 500) + greys * rng.uniform(0, 1))


def _grid(rng: Rng) -> Grey:
    """Draw bricks, tiles, planks or rows of windows."""
    width, height = int(rng.integers(12, 90)), int(rng.integers(10, 60))
    gap = int(rng.integers(1, max(min(width, height) // 3, 2)))
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    row = y // height
    shifted = x + (row % 2) * (width // 2 if rng.random() < 0.5 else 0)
    column = shifted // width
    greys = rng.normal(150, rng.uniform(5, 50), (row.max() + 1, column.max() + 1))
    inside = (y % height >= gap) & (shifted % width >= gap)
    return np.clip(np.where(inside, greys[row, column], rng.uniform(0, 255)), 0, 255).astype(np.uint8)


def _waves(rng: Rng) -> Grey:
    """Draw stripes, wood or ripples: a sine of a disturbed coordinate."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    bend = spectrum_noise(rng, SIDE, rng.uniform(1.4, 2.2)) * rng.uniform(0, 40)
    phase = (x + bend) * 2 * np.pi / rng.uniform(8, 70) + y * rng.uniform(0, 0.02)
    return stretch((np.sin(phase) * rng.uniform(1, 6)).clip(-1, 1) + 0.2 * spectrum_noise(rng, SIDE, 1.0))


def _patches(rng: Rng) -> Grey:
    """Draw animal coats or camouflage: thresholded noise of one scale."""
    noise = spectrum_noise(rng, SIDE, rng.uniform(1.2, 2), rng.choice([1.0, 3.0]), rng.choice([0, rng.uniform(6, 40)]))
    steps = np.tanh((noise - rng.normal(0, 0.6)) * rng.uniform(3, 12))
    return stretch(steps + rng.uniform(0.05, 0.3) * spectrum_noise(rng, SIDE, 1.0))


def _warped(rng: Rng) -> Grey:
    """Draw marble, rock or clouds: fractal noise with a fractal displacement."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    reach = rng.uniform(10, 60)
    base = spectrum_noise(rng, SIDE, rng.uniform(0.8, 1.6))
    shift_x, shift_y = (spectrum_noise(rng, SIDE, 1.8) * reach for _ in range(2))
    moved = cv2.remap(base, x + shift_x, y + shift_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
    return stretch(moved.astype(np.float32))


def _plain(rng: Rng) -> Grey:
    return stretch(spectrum_noise(rng, SIDE, rng.uniform(0.5, 2.0), rng.choice([1.0, 1.0, 2.0, 5.0, 12.0])))


_KINDS = (_plain, _plain, _plain, _warped, _leaves, _strokes, _strokes, _cells, _grid, _waves, _patches)


class TextureBank:
    """Grey textures, each at three sizes to avoid aliasing."""

    def __init__(self, seed: int, count: int = 220) -> None:
        rng = np.random.default_rng(seed)
        self.pyramids: list[list[Grey]] = []
        for index in range(count):
            texture = _KINDS[index % len(_KINDS)](rng)
            if rng.random() < 0.3:
                other = stretch(spectrum_noise(rng, SIDE, rng.uniform(0.8, 1.6)))
                texture = cv2.addWeighted(texture, 0.7, other, 0.3, 0).astype(np.uint8)
            half = cv2.resize(texture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            quarter = cv2.resize(half, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            self.pyramids.append([texture, half.astype(np.uint8), quarter.astype(np.uint8)])

    def read(self, rng: Rng, index: int, side: int, *, scale: float, angle: float, ground: bool) -> Grey:
        """Return texture `index` at `scale` texels per pixel, (side, side) uint8; `ground` foreshortens the top."""
        level = int(np.clip(np.log2(max(scale, 1)) + 0.5, 0, 2))
        texture = self.pyramids[index][level]
        scale = scale / 2**level
        cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
        offset = rng.uniform(0, texture.shape[0], 2)
        matrix = np.array([[cos, -sin, offset[0]], [sin, cos, offset[1]], [0, 0, 1]], np.float64)
        if ground:
            matrix = matrix @ np.array([[1, 0, -side / 2], [0, 1.5, 0], [0, rng.uniform(0.2, 1.5) / side, 0.4]])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return cv2.warpPerspective(texture, matrix, (side, side), flags=flags, borderMode=cv2.BORDER_WRAP).astype(
            np.uint8
        )


def natural_colour(rng: Rng) -> NDArray[np.float32]:
    """Return a natural colour, mostly muted, sometimes vivid: (3,) float32 RGB, 0 to 255."""
    hue = rng.choice(
        [rng.normal(20, 8), rng.normal(40, 12), rng.normal(105, 8), rng.uniform(0, 180)], p=[0.3, 0.2, 0.2, 0.3]
    )
    saturation = np.clip(rng.beta(1.3, 2.2) * 255, 0, 255)
    value = np.clip(rng.beta(1.6, 1.4) * 255, 8, 255)
    hsv = np.array([[[hue % 180, saturation, value]]], np.uint8)
    rgb: NDArray[np.float32] = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0, 0].astype(np.float32)
    return rgb


class Palette:
    """Few colours that most materials of a scene resemble, as in photographs."""

    def __init__(self, rng: Rng) -> None:
        count = int(rng.integers(2, 6))
        self.colours = [natural_colour(rng) for _ in range(count)]
        self.strictness = float(rng.choice([0.0, 0.6, 0.95]))
        if rng.random() < 0.35:  # common colour of the light
            tint = natural_colour(rng)
            share = rng.uniform(0.3, 0.75)
            self.colours = [(1 - share) * colour + share * tint for colour in self.colours]

    def colour(self, rng: Rng) -> NDArray[np.float32]:
        """Return a colour near one of the palette, or sometimes any colour: (3,) float32 RGB."""
        if rng.random() > self.strictness:
            return natural_colour(rng)
        near = self.colours[int(rng.integers(len(self.colours)))] * np.exp(rng.normal(0, 0.35)) + rng.normal(0, 10, 3)
        bounded: NDArray[np.float32] = np.clip(near, 4, 252).astype(np.float32)
        return bounded


class Material:
    """Texture with a colour for each of its greys."""

    def __init__(self, rng: Rng, bank: TextureBank, colour: NDArray[np.float32] | None = None) -> None:
        self.bank = bank
        self.index = int(rng.integers(len(bank.pyramids)))
        self.scale = float(np.exp(rng.uniform(np.log(0.5), np.log(4.0))))
        self.angle = float(rng.choice([0, np.pi / 2, rng.uniform(0, np.pi)]))
        self.contrast = float(np.clip(np.exp(rng.normal(-1.0, 0.8)), 0.02, 1.2))
        self.ground = bool(rng.random() < 0.15)
        self.recolour(rng, natural_colour(rng) if colour is None else colour)

    def recolour(self, rng: Rng, colour: NDArray[np.float32]) -> None:
        """Use `colour` (3,) as the middle of a ramp of two to four colours."""
        self.colour = colour
        stops = int(rng.integers(2, 5))
        ramp = np.linspace(-1, 1, stops)[:, None] * np.ones(3) + rng.normal(0, 0.35, (stops, 3))
        if rng.random() < 0.25:
            ramp += (natural_colour(rng) - colour) / 128 * rng.random((stops, 1))
        colours = colour * (1 + self.contrast * ramp * 0.5) + self.contrast * ramp * 35
        at = np.linspace(0, 255, stops)
        lut = np.stack([np.interp(np.arange(256), at, colours[:, c]) for c in range(3)], 1)
        self.lut = np.clip(lut, 0, 255).astype(np.uint8)[:, None]

    def akin(self, rng: Rng, distance: float) -> "Material":
        """Return a copy with a colour about `distance` grey levels away, at another place of the texture."""
        other = object.__new__(Material)
        other.__dict__.update(self.__dict__)
        other.recolour(rng, np.clip(self.colour + rng.normal(0, distance, 3), 5, 250).astype(np.float32))
        return other

    def painted(self, rng: Rng, side: int) -> Image:
        """Return a canvas of the material, (side, side, 3) uint8 RGB."""
        grey = self.bank.read(rng, self.index, side, scale=self.scale, angle=self.angle, ground=self.ground)
        return cv2.applyColorMap(grey, self.lut).astype(np.uint8)
