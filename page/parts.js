// Parts of an image, each sent to the service as a separate image: small objects get the model's whole resolution.

import { canvasOf } from "./dom.js";
import { clipped, moved, scaled } from "./regions.js";
import { RemoteImage } from "./service.js";

/** A larger part is sent as a JPEG, which the service gets and reads sooner. */
const MAX_PNG_PIXELS = 2_000_000;
const JPEG_QUALITY = 0.95;

export class Part {
  /**
   * @param {import("./store.js").StoredImage} image
   * @param {number[]} box x0, y0, x1, y1 in whole pixels of the image; x1 and y1 are exclusive
   */
  constructor(image, box) {
    const [x0, y0, x1, y1] = box;
    const { file, width, height } = image.original ?? image;
    this.image = image;
    this.x = x0;
    this.y = y0;
    this.boxWidth = x1 - x0;
    this.boxHeight = y1 - y0;
    /** Size as sent, in pixels of the original if the image is a smaller copy. */
    this.width = Math.round((this.boxWidth * width) / image.width);
    this.height = Math.round((this.boxHeight * height) / image.height);
    this.remote = new RemoteImage(() => this.#crop(file, width / image.width, height / image.height));
  }

  async #crop(file, scaleX, scaleY) {
    const bitmap = await createImageBitmap(file), { width, height } = this;
    const [x, y, fromWidth, fromHeight] = [this.x * scaleX, this.y * scaleY, this.boxWidth * scaleX, this.boxHeight * scaleY];
    const canvas = canvasOf(width, height, (context) => context.drawImage(bitmap, x, y, fromWidth, fromHeight, 0, 0, width, height));
    bitmap.close();
    return canvas.convertToBlob({ type: width * height > MAX_PNG_PIXELS ? "image/jpeg" : "image/png", quality: JPEG_QUALITY });
  }

  /**
   * Return a pixel of the image in pixels of the part; with a smaller copy, they can be fractions.
   * @param {number[]} pixel x, y
   */
  pixel(pixel) {
    const [x, y] = pixel;
    const inPart = (at, start, size, sent) => ((at + 0.5 - start) * sent) / size - 0.5;
    return [inPart(x, this.x, this.boxWidth, this.width), inPart(y, this.y, this.boxHeight, this.height)];
  }

  /** Return a mask of the image as one of the part. */
  cut(mask) {
    const { x, y, boxWidth: width, boxHeight: height } = this;
    return scaled(moved(clipped(mask, [x, y, x + width - 1, y + height - 1]), { x: -x, y: -y }, { width, height }), this);
  }

  /** Return a mask of the part as one of the image: no pixel outside of the part is in it. */
  place(mask) {
    return moved(scaled(mask, { width: this.boxWidth, height: this.boxHeight }), this, this.image);
  }
}
