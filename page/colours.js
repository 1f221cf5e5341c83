// Colours of objects: hues by the golden angle at three lightness levels, so that 100 objects are told apart.

/** The first object is pink, which photographs seldom have: skies and water are blue. */
const FIRST_HUE = 350, GOLDEN_ANGLE = 137.508;
/** In OKLCH, where equal steps look equal. These levels are visible on dark and on light photographs. */
const LIGHTNESS = [0.66, 0.54, 0.8], CHROMA = 0.18;

/**
 * Return the colour of an object.
 * @param {number} number of the object, from 1
 * @returns {string} `#rrggbb`
 */
export function colourOf(number) {
  const hue = ((FIRST_HUE + (number - 1) * GOLDEN_ANGLE) * Math.PI) / 180;
  const a = CHROMA * Math.cos(hue), b = CHROMA * Math.sin(hue), lightness = LIGHTNESS[(number - 1) % LIGHTNESS.length];
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
    -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
    -0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short,
  ];
  return `#${linear.map(toHex).join("")}`;
}

/** Convert a linear component, clipped to 0 to 1, to two sRGB digits. */
function toHex(component) {
  const clipped = Math.min(Math.max(component, 0), 1);
  const encoded = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
  return Math.round(255 * encoded).toString(16).padStart(2, "0");
}
