"""Limits and times in the sentences of the documentation agree with the code."""

from pathlib import Path

import pytest

from benchmarks.gate import LOW_IOU, MAX_DROP, MAX_LOW_SHARE, MIN_IOU
from orchestrator import cache, costs, redis_tier
from tools.environment import MIN_FREE_DISK_BYTES
from utils.api.everything import POINTS_PER_BATCH
from utils.api.received import MAX_VALUES
from utils.api.requests import MAX_OBJECTS
from utils.edge.keys import MIN_KEY_LENGTH
from utils.edge.lifecycle import ANSWER_STALL_TIMEOUT_S, FINISH_TIMEOUT_S
from utils.integrations.adapter import MAX_TEXT_CHARS
from utils.integrations.fetch import MAX_URL_CHARS
from utils.integrations.label_studio_config import MAX_CONFIG_CHARS, MAX_CONFIG_DEPTH, MAX_CONFIG_TAGS, MAX_OBJECT_TAGS
from utils.integrations.service import MAX_DOCUMENT_BYTES, MAX_POLYGON_BYTES, MAX_WAITING
from utils.settings import Settings
from utils.triton.health import MAX_RECORD_AGE_S
from utils.triton.run import MIN_SHARED_MEMORY_AT_START_BYTES
from utils.triton.segmenter import INLINE_BYTES
from utils.triton.watchdog import Timings

DOCS = Path(__file__).parents[2] / "docs"
MIB = 2**20
TIMINGS = Timings()
IDLE_S, ENCODER_IDLE_S = TIMINGS.idle_before_probe_s, TIMINGS.encoder_idle_before_probe_s
LIGHT_MEGAPIXELS = costs.MAX_LIGHT_PIXELS / 1e6
ANSWER_MIB = Settings().max_answer_bytes / MIB
SENTENCES = [
    ("how-it-works.md", f"idle for {IDLE_S:g} s (the encoder: {ENCODER_IDLE_S:g} s)"),
    ("how-it-works.md", f"pauses of up to {max(TIMINGS.restart_delays_s):g} s"),
    ("how-it-works.md", f"above {costs.MAX_WORK_S:g} s of work or {ANSWER_MIB:g} MiB"),
    ("how-it-works.md", f"up to {POINTS_PER_BATCH} grid points and {costs.MAX_BATCH_S:g} s of estimated work"),
    ("how-it-works.md", f"Values above {INLINE_BYTES // 1024} KiB"),
    ("embeddings.md", f"above {costs.MAX_LIGHT_WORK_S} s of estimated work or {LIGHT_MEGAPIXELS:g} megapixels"),
    ("embeddings.md", f"at most {cache.MAX_SHARES} shares"),
    ("embeddings.md", f"1/{cache.CROPS_SHARE} of that size"),
    ("embeddings.md", f"up to {cache.MAX_MEMORY_BYTES // MIB} MiB and at least one"),
    (
        "embeddings.md",
        f"({redis_tier.CONNECT_TIMEOUT_S} s to connect, {redis_tier.TRANSFER_TIMEOUT_S:g} s without a byte, "
        f"{redis_tier.ANSWER_TIMEOUT_S:g} s for an answer)",
    ),
    ("embeddings.md", f"does without it for {redis_tier.RETRY_AFTER_S:g} s"),
    ("security.md", f"[{costs.MAX_BATCH_S:g} s of a core]"),
    ("engines.md", f"at least {MIN_IOU} with ONNX Runtime's float32 masks, and a loss of at most {MAX_DROP} mean IoU"),
    ("engines.md", f"at most {MAX_LOW_SHARE * 100:g} % may be below {LOW_IOU}"),
    ("models.md", f"after at most {IDLE_S + 1:g} s (the encoder: {ENCODER_IDLE_S + 1:g} s)"),
    ("deployment.md", f"set-up requires {MIN_FREE_DISK_BYTES / 1e9:g} GB free"),
    ("deployment.md", f"{MIN_SHARED_MEMORY_AT_START_BYTES // MIB} MiB free; containers have 64 MB"),
    ("kubernetes.md", f"accepted ones get up to {FINISH_TIMEOUT_S:g} s"),
    ("security.md", f"keys of {MIN_KEY_LENGTH} characters or more"),
    ("troubleshooting.md", f"For {MAX_RECORD_AGE_S:g} s: the machine is out of memory"),
    ("troubleshooting.md", f"The service drops an answer if the caller reads nothing for {ANSWER_STALL_TIMEOUT_S:g} s"),
    ("security.md", f"images aside: [{MAX_TEXT_CHARS:,}]("),
    ("security.md", f"a URL to fetch: [{MAX_URL_CHARS:,}]("),
    ("security.md", f"of Label Studio: [{MAX_CONFIG_CHARS:,}]("),
    ("security.md", f"for images and masks: [{MAX_CONFIG_TAGS:,}; {MAX_CONFIG_DEPTH}; {MAX_OBJECT_TAGS}]("),
    ("security.md", f"values in a body: [{MAX_VALUES:,}]("),
    ("security.md", f"for a tool's form: [{costs.MAX_WORK_S:g} s of a core]("),
    ("security.md", f"for a tool; as polygons: [{MAX_DOCUMENT_BYTES // MIB} MiB; {MAX_POLYGON_BYTES // MIB} MiB]("),
    ("security.md", f"at once; waiting: [1; {MAX_WAITING}]("),
    ("integrations/label-studio.md", f"more than {MAX_VALUES:,} values"),
    ("faq.md", f"in one request (`prompts`, up to {MAX_OBJECTS})"),
    ("faq.md", f"{Settings().max_body_bytes // MIB} MiB; PNG, JPEG or WebP"),
]


@pytest.mark.parametrize(("page", "sentence"), SENTENCES, ids=[f"{page}: {text}" for page, text in SENTENCES])
def test_number_on_a_page_agrees_with_the_code(page, sentence):
    assert sentence in " ".join((DOCS / page).read_text().split())
