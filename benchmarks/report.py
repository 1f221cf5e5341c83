"""Description of the machine, and the generated blocks of the documentation."""

import datetime
import os
import platform
import re
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path

import psutil

from harness import ROOT

PAGES = [ROOT / f"docs/{name}.md" for name in ("performance", "performance-details", "capacity", "kubernetes")]
BLOCKS = ("machine", "answer", "answer-builtin", "closed")
"""Blocks of the pages that a full run generates."""
PEERS, CLICKS_IN_PAGE, AHEAD, LOCAL, CAPACITY, SCALE = "peers", "page", "ahead", "local", "capacity", "scale"
"""Blocks that `make bench-peers`, `bench-page`, `bench-ahead`, `bench-local`, `capacity` and `scale` generate."""
START = re.compile(r"^<!-- bench (\S+) -->$", re.MULTILINE)
PACKAGES = ("bentoml", "nvidia-pytriton", "tritonclient", "onnxruntime", "onnxruntime-gpu", "openvino", "numpy")
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def machine(*, versions: bool = True) -> str:
    """Return date, processor, memory and, if wanted, versions of Python and packages as a line of text."""
    cpu = dict(re.findall(r"^(model name|flags)\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    features = ", ".join(name for name in FEATURES if name in cpu.get("flags", "").split())
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    processor = cpu.get("model name", platform.machine())
    hardware = f"Measured on {date} on {os.cpu_count()} cores of an {processor} ({features}), {memory}."
    if not versions:
        return hardware
    installed = {each.name for each in metadata.distributions()}
    packages = "".join(f", {name} {metadata.version(name)}" for name in PACKAGES if name in installed)
    return f"{hardware} Python {platform.python_version()}{packages}."


def with_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with new text in its generated blocks, between `<!-- bench NAME -->` and `<!-- end -->`."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- bench {match[1]} -->\n{blocks[match[1]]}\n<!-- end -->" if match[1] in blocks else match[0]

    return re.sub(r"^<!-- bench (\S+) -->\n.*?<!-- end -->$", fill, page, flags=re.DOTALL | re.MULTILINE)


def check_blocks(blocks: Collection[str], pages: Collection[Path] = PAGES) -> None:
    """Check that the pages have these generated blocks.

    Raises:
        ValueError: no page has one of the blocks.
    """
    names = [name for page in pages for name in START.findall(page.read_text())]
    if missing := sorted(set(blocks) - set(names)):
        raise ValueError(f"expected generated blocks {missing}, got {sorted(names)}")


def write_blocks(blocks: Mapping[str, str], pages: Collection[Path] = PAGES) -> None:
    """Write generated blocks into the pages that have them.

    Raises:
        ValueError: no page has one of the blocks.
    """
    check_blocks(blocks, pages)
    for page in pages:
        page.write_text(with_blocks(page.read_text(), blocks))
        print(f"wrote {page}")
