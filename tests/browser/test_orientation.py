"""The orientation of image files that the service applies is the browser's."""

import base64

import numpy as np

from tests.oriented_files import FILES, orientations_shown

DECODE = """async (files) => {
  const pictures = {};
  for (const [name, data] of Object.entries(files)) {
    const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes])).catch((error) => error);
    if (bitmap instanceof Error) {
      pictures[name] = { error: String(bitmap) };
      continue;
    }
    const { width, height } = bitmap;
    const context = new OffscreenCanvas(width, height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    pictures[name] = { width, height, rgba: [...context.getImageData(0, 0, width, height).data] };
  }
  return pictures;
}"""


def test_browser_turns_every_file_by_the_orientation_of_the_table(browser):
    page = browser.new_page()
    page.goto("about:blank")
    pictures = page.evaluate(
        DECODE, {name: base64.b64encode(file).decode() for name, (_, file) in FILES.items()}
    )
    page.close()
    shown = {}
    for name, picture in pictures.items():
        assert "error" not in picture, name
        pixels = np.array(picture["rgba"], np.uint8).reshape(picture["height"], picture["width"], 4)
        shown[name] = orientations_shown(pixels[..., :3])
    assert shown == {name: [orientation] for name, (orientation, _) in FILES.items()}
