// Masks as polygons, one per island: the outline, to which a seam joins each hole.

/**
 * @typedef {number[]} Polygon x0, y0, x1, y1, ...; the last point is joined to the first
 * @typedef {"edges" | "pixels"} Frame
 *   edges: whole numbers are at pixel edges, so that pixel (3, 5) is the square from 3, 5 to 4, 6; what pycocotools reads.
 *   pixels: points are the indices of the outermost pixels, as OpenCV's findContours returns and fillPoly paints them.
 */

/** Largest distance of a polygon from the mask's outline, in pixels, as the service's default. */
const TOLERANCE_PIXELS = 0.5;

/**
 * Return a mask as polygons with at least three points. Pixels that touch at a corner are in one polygon.
 *
 * A hole is joined to the outline above it by a seam, which is walked down and up again within one column of the mask: an
 * even-odd and a non-zero fill then both keep the hole, and painting the seam changes no pixel. At tolerance 0 a polygon
 * is exact.
 * @param {import("./spans.js").Spans} spans
 * @param {Frame} frame
 * @param {number} tolerance
 * @returns {Polygon[]}
 */
export function polygonsOf(spans, frame, tolerance = TOLERANCE_PIXELS) {
  const next = linkEdges(spans);
  const { outlines, seams } = findRings(spans, next);
  return outlines.map((start) => {
    const chains = new Walk(spans, next, seams, frame).from(start);
    const simple = tolerance ? chains.flatMap((chain) => simplify(chain, tolerance)) : chains.flat();
    const polygon = simple.length > 6 ? simple : chains.flat();
    // The walk ends where it began; of a single pixel it is one point.
    if (polygon.length > 2) polygon.length -= 2;
    while (polygon.length < 6) polygon.push(...polygon.slice(-2));
    return polygon;
  });
}

/**
 * Return a mask's rings of points at pixel edges: for each island the outline, then its holes.
 * @param {import("./spans.js").Spans} spans
 * @returns {number[][][]} x0, y0, x1, y1, ...; the last point is joined to the first
 */
export function ringsOf(spans) {
  const next = linkEdges(spans), { outlines, holes } = findRings(spans, next);
  const noSeams = new Uint8Array(spans.columns.length);
  const ring = (start) => new Walk(spans, next, noSeams, "edges").from(start)[0].slice(0, -2);
  return outlines.map((start) => [ring(start), ...(holes.get(start) ?? []).map((hole) => ring(next[hole]))]);
}

// Edge 2i is the top edge of span i, walked to the right; edge 2i + 1 its bottom edge, walked to the left. The mask is on
// the right-hand side. Vertical edges are implied where an edge's successor is at another height.

const isTop = (edge) => (edge & 1) === 0;

/** Return the row of an edge. */
function heightOf({ tops, bottoms }, edge) {
  return isTop(edge) ? tops[edge >> 1] : bottoms[edge >> 1];
}

/** Return the successor of each edge on its ring. */
function linkEdges(spans) {
  const next = new Int32Array(2 * spans.columns.length), ranges = new Map(), none = { from: 0, to: 0 };
  spans.columns.forEach((column, i) => {
    if (!ranges.has(column)) ranges.set(column, { from: i, to: i });
    ranges.get(column).to = i + 1;
  });
  for (const [column, range] of ranges) {
    linkColumns(spans, next, ranges.get(column - 1) ?? none, range);
    if (!ranges.has(column + 1)) linkColumns(spans, next, range, none);
  }
  return next;
}

/** Link the edges that meet between two neighbouring columns, from top to bottom. */
function linkColumns(spans, next, left, right) {
  let l = 2 * left.from, r = 2 * right.from, open = -1;
  // At equal heights the top edge is first, which joins pixels that touch at a corner.
  const order = (edge, end) => (edge < end ? 2 * heightOf(spans, edge) + (edge & 1) : Infinity);
  while (l < 2 * left.to || r < 2 * right.to) {
    const ofLeft = order(l, 2 * left.to), ofRight = order(r, 2 * right.to);
    if (ofLeft === ofRight) {
      if (isTop(l)) next[l] = r;
      else next[r] = l;
      l++;
      r++;
      continue;
    }
    const edge = ofLeft < ofRight ? l++ : r++;
    if (open < 0) {
      open = edge;
      continue;
    }
    // The two are joined by a vertical edge. Top edges of the left column and bottom edges of the right one lead to it.
    const leads = (open < 2 * left.to) === isTop(open);
    if (leads) next[open] = edge;
    else next[edge] = open;
    open = -1;
  }
}

/**
 * Return an edge of each outline; an edge of each hole by its outline's; and a flag for each span that has a seam: from its
 * bottom edge, the highest one of a hole, to its top edge, which belongs to the outline or to a hole higher up.
 */
function findRings(spans, next) {
  const outlines = [], seams = new Uint8Array(spans.columns.length);
  const rings = new Int32Array(next.length).fill(-1), highestOf = new Map();
  for (let first = 0; first < next.length; first++) {
    if (rings[first] >= 0) continue;
    let area = 0, highest = -1, top = Infinity;
    for (let edge = first; rings[edge] < 0; edge = next[edge]) {
      rings[edge] = first;
      const y = heightOf(spans, edge);
      area += isTop(edge) ? -y : y;
      if (!isTop(edge) && y < top) {
        highest = edge;
        top = y;
      }
    }
    if (area > 0) outlines.push(first);
    else highestOf.set(first, highest);
  }
  for (const highest of highestOf.values()) seams[highest >> 1] = 1;
  const outlineOf = (ring) => {
    while (highestOf.has(ring)) ring = rings[highestOf.get(ring) ^ 1];
    return ring;
  };
  return { outlines, holes: Map.groupBy(highestOf.keys(), outlineOf), seams };
}

/** A walk along an outline and, over the seams, its holes. */
class Walk {
  /** @type {number[][]} */
  #chains = [[]];

  constructor(spans, next, seams, frame) {
    this.spans = spans;
    this.next = next;
    this.seams = seams;
    this.isEdges = frame === "edges";
  }

  /** Return the walk's points, split at the seams, to keep the seams' ends. The last point is the first. */
  from(start) {
    const { seams, next } = this;
    let edge = start;
    do {
      this.#begin(edge);
      if (isTop(edge) && seams[edge >> 1]) {
        this.#chains.push([]);
        edge ^= 1;
        this.#end(edge);
      } else {
        this.#end(edge);
        if (!isTop(edge) && seams[edge >> 1]) {
          this.#chains.push([]);
          edge ^= 1;
          this.#begin(edge);
          this.#end(edge);
        }
      }
      this.#climb(edge, next[edge]);
      edge = next[edge];
    } while (edge !== start);
    this.#begin(start);
    return this.#chains;
  }

  #begin(edge) {
    this.#pushEnd(edge, edge & 1);
  }

  #end(edge) {
    this.#pushEnd(edge, 1 - (edge & 1));
  }

  #pushEnd(edge, right) {
    const x = this.spans.columns[edge >> 1], y = heightOf(this.spans, edge);
    if (this.isEdges) this.#push(x + right, y);
    else this.#push(x, y - (edge & 1));
  }

  /** Walk the vertical edge between two edges along the pixels on its right-hand side. */
  #climb(edge, following) {
    if (this.isEdges) return;
    const x = this.spans.columns[edge >> 1] + 1 - (edge & 1);
    const from = heightOf(this.spans, edge), to = heightOf(this.spans, following);
    if (to > from) {
      this.#push(x - 1, from);
      this.#push(x - 1, to - 1);
    } else if (to < from) {
      this.#push(x, from - 1);
      this.#push(x, to);
    }
  }

  /** Append a point, which replaces the last one if that is on the way to it. */
  #push(x, y) {
    const chain = this.#chains.at(-1), end = chain.length;
    if (end >= 2) {
      const dx = x - chain[end - 2], dy = y - chain[end - 1];
      if (!dx && !dy) return;
      if (end >= 4) {
        const beforeX = chain[end - 2] - chain[end - 4], beforeY = chain[end - 1] - chain[end - 3];
        if (beforeX * dy === beforeY * dx && beforeX * dx + beforeY * dy > 0) chain.length -= 2;
      }
    }
    chain.push(x, y);
  }
}

/** Return the squared distance of a point from the line between 0, 0 and another point. */
export function squaredDistance(x, y, endX, endY) {
  const squared = endX * endX + endY * endY;
  const along = squared ? Math.min(1, Math.max(0, (x * endX + y * endY) / squared)) : 0;
  return (x - along * endX) ** 2 + (y - along * endY) ** 2;
}

/** Simplify a line by Douglas and Peucker's algorithm; its ends are kept. */
export function simplify(chain, tolerance) {
  const count = chain.length / 2;
  const kept = new Uint8Array(count);
  kept[0] = kept[count - 1] = 1;
  const stack = [0, count - 1];
  while (stack.length) {
    const last = stack.pop(), first = stack.pop();
    const x0 = chain[2 * first], y0 = chain[2 * first + 1];
    const dx = chain[2 * last] - x0, dy = chain[2 * last + 1] - y0;
    let farthest = -1, most = tolerance * tolerance;
    for (let i = first + 1; i < last; i++) {
      const distance = squaredDistance(chain[2 * i] - x0, chain[2 * i + 1] - y0, dx, dy);
      if (distance > most) {
        most = distance;
        farthest = i;
      }
    }
    if (farthest < 0) continue;
    kept[farthest] = 1;
    stack.push(first, farthest, farthest, last);
  }
  return chain.filter((_, index) => kept[index >> 1]);
}
