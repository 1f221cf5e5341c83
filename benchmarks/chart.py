"""Bar charts of the tables in the documentation: `python -m benchmarks.chart` writes speed.svg and quality.svg."""

import math
from collections.abc import Mapping, Sequence

from harness import ROOT

DOCS = ROOT / "docs"
START = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {}" role="img" font-family="system-ui" font-size="14">'
)
HEADINGS = {"cold click, ms": "click on a new image, ms", "cached click, ms": "click on a known image, ms"}


def chart(panels: dict[str, dict[str, str]], longest: float = 0) -> str:
    """Return an SVG with bars of values by label; `longest` is the value of the longest bar, 0 that of each panel's."""
    shapes, y = ['<rect width="720" height="100%" fill="#fff"/>'], 0
    for heading, bars in panels.items():
        shapes.append(f'<text x="16" y="{y + 30}" font-weight="600">{heading}</text>')
        y += 46
        for label, value in bars.items():
            width = 380 * float(value) / (longest or max(map(float, bars.values())))
            colour = "#1f6fd6" if label in {"this service", "official weights"} else "#a9b4c2"
            shapes.append(f'<text x="242" y="{y + 15}" text-anchor="end">{label}</text>')
            shapes.append(f'<rect fill="{colour}" x="250" y="{y}" width="{width:.0f}" height="20"/>')
            shapes.append(f'<text x="{258 + width:.0f}" y="{y + 15}">{value}</text>')
            y += 26
    return "\n".join([START.format(y + 12), *shapes, "</svg>\n"])


def timeline(points: Sequence[tuple[float, float]], events: Mapping[str, tuple[float, float]]) -> str:
    """Return an SVG of times in milliseconds over seconds, with the start and end of events."""
    scale = 640 / max(seconds for seconds, _ in points)
    shapes = ['<rect width="720" height="100%" fill="#fff"/>', '<text x="16" y="24">p95 of clicks, ms</text>']
    for power in range(1, 5):
        y = 410 - 90 * power
        shapes.append(
            f'<path d="M60 {y}H700" stroke="#ddd"/><text x="52" y="{y + 5}" text-anchor="end">{10**power}</text>'
        )
    for name, (start, end) in events.items():
        x, width = 60 + scale * start, scale * (end - start)
        shapes.append(f'<rect x="{x:.1f}" y="40" width="{width:.1f}" height="280" fill="#f3d9b1"/>')
        shapes.append(f'<text transform="translate({x + 8:.1f} 316) rotate(-90)" font-size="11">{name}</text>')
    for seconds, found_ms in points:
        height = 90 * math.log10(found_ms)
        shapes.append(f'<circle cx="{60 + scale * seconds:.1f}" cy="{410 - height:.1f}" r="2" fill="#1f6fd6"/>')
    return "\n".join([START.format(340), *shapes, "</svg>\n"])


def charts() -> dict[str, str]:
    """Return the text of each chart by its file's name."""
    pages = "".join((DOCS / page).read_text() for page in ("performance.md", "weights.md"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in pages.splitlines() if line.startswith("| ")]
    times = [row for row in rows if row[0] == "official predictor" and row[1] in HEADINGS]
    speed = {HEADINGS[row[1]]: {row[0]: row[2], "this service": row[3]} for row in times}
    columns = {"GrabCut of OpenCV": 5, "built-in weights": 3, "official weights": 1}
    asked = {f"mean IoU, {row[0]}": row for row in rows if row[0] in {"1 click", "3 clicks", "box"}}
    quality = {heading: {name: row[at] for name, at in columns.items() if row[at]} for heading, row in asked.items()}
    return {"speed.svg": chart(speed), "quality.svg": chart(quality, 1)}


def main() -> None:
    """Write the charts."""
    for file, text in charts().items():
        (DOCS / "images" / file).write_text(text)


if __name__ == "__main__":
    main()
