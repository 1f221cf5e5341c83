"""Effects of light and camera on a painted scene: relief, shadows, dappled light, blur, colour cast, noise, JPEG."""

import cv2
import numpy as np
from numpy.typing import NDArray

Rng = np.random.Generator
Picture = NDArray[np.float32]
Alpha = NDArray[np.float32]


def smooth_field(rng: Rng, side: int, cells: int) -> Alpha:
    """Return smooth noise around 0 with about `cells` bumps per side: (side, side) float32."""
    field = rng.normal(0, 1, (cells + 1, cells + 1)).astype(np.float32)
    return cv2.resize(field, (side, side), interpolation=cv2.INTER_CUBIC).astype(np.float32)


def ramp(rng: Rng, side: int) -> Alpha:
    """Return a gradient from -1 to 1 along a random, mostly vertical direction: (side, side) float32."""
    angle = rng.normal(np.pi / 2, 0.5)
    line = np.linspace(-1, 1, side, dtype=np.float32)
    slope: Alpha = (np.cos(angle) * line[None] + np.sin(angle) * line[:, None]).astype(np.float32)
    return slope


def relief(rng: Rng, solid: NDArray[np.uint8], light: NDArray[np.float64]) -> Alpha:
    """Return the shading of the inflated shape `solid` (0 or 1) under `light` (x, y), a factor around 1: (H, W)."""
    distance = cv2.distanceTransform(solid, cv2.DIST_L2, 3)
    height = np.sqrt(np.minimum(distance, rng.uniform(6, 60)))
    height = cv2.GaussianBlur(height, (0, 0), rng.uniform(1.5, 5))
    slope_x = cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3)
    slope_y = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3)
    lit = -(slope_x * light[0] + slope_y * light[1]) * rng.uniform(0.1, 0.5)
    factor: Alpha = np.clip(1 + np.tanh(lit) * rng.uniform(0.2, 0.6), 0.3, 1.7).astype(np.float32)
    return factor


def cast_shadow(rng: Rng, alpha: Alpha, light: NDArray[np.float64]) -> Alpha:
    """Return the soft shadow of `alpha` as a factor from 0.3 to 1: (H, W) float32."""
    reach = rng.uniform(2, 30)
    shift = np.array([[1, rng.normal(0, 0.2), light[0] * reach], [0, 1, light[1] * reach]], np.float32)
    thrown = cv2.warpAffine(alpha, shift, alpha.shape[::-1])
    thrown = cv2.GaussianBlur(thrown, (0, 0), rng.uniform(0.8, 8))
    return (1 - rng.uniform(0.2, 0.7) * thrown).astype(np.float32)


def dappled(rng: Rng, side: int) -> Alpha:
    """Return patches of sun and shade, independent of objects, as a factor: (side, side) float32."""
    field = smooth_field(rng, side, int(rng.integers(3, 20))) + 0.5 * smooth_field(rng, side, 40)
    patches = 1 / (1 + np.exp(-field * rng.uniform(2, 10)))
    factor: Alpha = (1 - rng.uniform(0.2, 0.65) * patches).astype(np.float32)
    return factor


def photograph(rng: Rng, picture: Picture) -> NDArray[np.uint8]:
    """Convert a picture to what a camera would store: (H, W, 3) float32 RGB, 0 to 255, to uint8."""
    if rng.random() < 0.25:
        picture = picture + (picture.mean() - picture) * rng.uniform(0, 0.5)  # haze
    if rng.random() < 0.25:
        picture = cv2.GaussianBlur(picture, (0, 0), rng.uniform(0.4, 1.3)).astype(np.float32)
    picture = picture * (rng.uniform(0.8, 1.2) * np.exp(rng.normal(0, 0.06, 3))).astype(np.float32)
    gamma = np.exp(rng.normal(0, 0.25))
    table = np.clip((np.arange(0, 1024, dtype=np.float32) / 255) ** gamma * 255, 0, 255)
    if abs(gamma - 1) > 0.1:
        picture = table[np.clip(picture, 0, 1023).astype(np.int32)]
    if rng.random() < 0.35:
        picture = picture * 1.5 - 0.5 * cv2.GaussianBlur(picture, (0, 0), 1.0)  # sharpening
    grain = rng.standard_normal(picture.shape, np.float32) * np.float32(rng.exponential(3.0))
    if rng.random() < 0.3:
        grain = cv2.GaussianBlur(grain, (0, 0), 0.8) * 2
    out: NDArray[np.uint8] = np.clip(picture + grain, 0, 255).astype(np.uint8)
    if rng.random() < 0.03:
        out = np.repeat(cv2.cvtColor(out, cv2.COLOR_RGB2GRAY)[..., None], 3, 2)
    if rng.random() < 0.6:
        quality = int(rng.integers(30, 95))
        stored = cv2.imencode(".jpg", out, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        out = np.asarray(cv2.imdecode(stored, cv2.IMREAD_COLOR), np.uint8)
    return out
