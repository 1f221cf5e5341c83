"""The files of this project that one cached click enters, in order: `python -m tools.click_path`.

Everything runs in this process: the HTTP application with its edge, and the orchestrator in place of Triton. A stand-in
replaces the decoder. `ELSEWHERE` lists what a real request enters in uvicorn and in Triton. A module without
functions counts as entered if a function that runs names something in it.
"""

import ast
import asyncio
import functools
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import httpx
import numpy as np
import orjson
import pybase64

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = (
    "utils/edge/connections.py",
    "model_repository/mobile_sam_cached/1/model.py",
    "orchestrator/triton_io.py",
    "triton_backends/common/openvino_engine.py",
)
PHOTO = ROOT / "page/samples/balloons.jpg"


def pipeline(folder: Path) -> Any:
    """Return the orchestrator's pipeline with a stand-in for the networks."""
    from orchestrator.cache import MOBILE_SAM_SHAPES, EmbeddingCache, Layout  # noqa: PLC0415
    from orchestrator.call import Stages  # noqa: PLC0415
    from orchestrator.embeddings import Embeddings  # noqa: PLC0415
    from orchestrator.pipeline import Pipeline  # noqa: PLC0415

    def decode(inputs: dict[str, Any], _: list[str]) -> list[Any]:
        x, y = np.meshgrid(np.arange(256), np.arange(256))
        logits = (40 - np.hypot(x - 128, y - 80)).astype(np.float32)
        return [np.tile(logits, (len(inputs["point_labels"]), 1, 1, 1)), np.full((1, 4), 0.9, np.float32)]

    stages = Stages(lambda *_: None)
    embedding = {name: np.zeros(shape, np.float16) for name, shape in MOBILE_SAM_SHAPES.items()}
    cache = EmbeddingCache(folder, Layout("a" * 16), 2**30, lambda _: None)
    return Pipeline(
        run_decoder=decode,
        embeddings=Embeddings(cache, None, lambda _: embedding, 25_000_000, lambda _: None, stages=stages),
        stages=stages,
        identity={"weights": {"name": "none"}, "engine": {}, "model_version": 1},
        thresholds={},
        max_answer_bytes=2**30,
        decoder_batch=8,
    )


async def files_of_a_click(folder: Path) -> list[str]:
    """Return the files that the second of two clicks on an image enters."""
    os.environ["MOBILE_SAM_CACHE_DIR"] = str(folder)
    import service  # noqa: PLC0415
    from orchestrator.call import Call, Outcome  # noqa: PLC0415
    from orchestrator.problems import UnknownImage  # noqa: PLC0415
    from orchestrator.segment import OUTPUTS, segment  # noqa: PLC0415
    from utils.triton.health import Health, write_health  # noqa: PLC0415
    from utils.triton.run import RunState  # noqa: PLC0415

    write_health(RunState.current().health_file, Health("ready"))
    work = pipeline(folder / "embeddings")

    async def infer(*, inputs: list[Any], **_: Any) -> Any:
        call = Call({each.name(): _array(each) for each in inputs}.get)
        work.stages.begin(call.raise_if_cancelled, counts=False)
        try:
            parts, outcome = call.send(segment(work, call))
        except UnknownImage:
            parts, outcome = [b""] * len(OUTPUTS), Outcome(unknown_image=True)
        outputs = dict(zip(OUTPUTS, parts, strict=True)) | {"outcome": orjson.dumps(outcome)}
        return SimpleNamespace(as_numpy=lambda name: [outputs[name]])

    service.app.segmenter.infer = infer  # type: ignore[attr-defined]
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{ROOT}/") and "/.venv" not in file and file != __file__:
            found.setdefault(file.removeprefix(f"{ROOT}/"))
            found.update(dict.fromkeys(sources(file)[name] for name in frame.f_code.co_names if name in sources(file)))

    transport = httpx.ASGITransport(service.svc.asgi_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        first = await client.post(
            "/mobile_sam", content=_click({"input_image": pybase64.b64encode_as_string(PHOTO.read_bytes())})
        )
        image_id = first.text.split('"image_id":"')[1][:64]
        sys.setprofile(note)
        second = await client.post("/mobile_sam", content=_click({"image_id": image_id}))
        sys.setprofile(None)
    second.raise_for_status()
    return [*dict.fromkeys([*found, *ELSEWHERE])]


@functools.cache
def sources(file: str) -> dict[str, str]:
    """Return the names that a module imports from modules of this project without functions, and their files."""
    found = {}
    for node in ast.walk(ast.parse(Path(file).read_text())):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            module = str(node.module).replace(".", "/") if isinstance(node, ast.ImportFrom) else ""
            for source in (f"{module}.py", f"{module}/{alias.name}.py"):
                if (ROOT / source).is_file() and "\ndef " not in (ROOT / source).read_text():
                    found[alias.asname or alias.name] = source
    return found


def _click(image: dict[str, str]) -> bytes:
    return orjson.dumps({**image, "pos_coords": [[903, 310]]})


def _array(each: Any) -> Any:
    data = each._get_binary_data()
    if each.datatype() == "BYTES":
        return np.array([data[4:]], np.object_)
    dtype = {"FP32": np.float32, "INT32": np.int32}[each.datatype()]
    return np.frombuffer(data, dtype).reshape(each.shape())


def main() -> None:
    """Print the files and their number."""
    with tempfile.TemporaryDirectory() as folder:
        files = asyncio.run(files_of_a_click(Path(folder)))
    print(*files, f"{len(files)} files", sep="\n")


if __name__ == "__main__":
    main()
