"""Concurrency of a batch."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mobile_sam_client import AsyncClient, Engine, Everything, Info, Weights
from mobile_sam_client._commands.records import Records
from mobile_sam_client._commands.work import BatchFolders, BatchRunner, BatchState

WEIGHTS = Weights("none", "0" * 64, True, "")
ENGINE = Engine("an encoder", "a decoder")
INFO = Info("1", WEIGHTS, ENGINE, False, 10, 10, 10, (1,))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_concurrency_is_used_and_not_exceeded(tmp_path, concurrency):
    names = [f"{number}.png" for number in range(6)]
    for name in names:
        (tmp_path / name).write_bytes(b"image")
    running, max_running = 0, 0

    async def run() -> None:
        full = asyncio.Event()

        async def everything(*_: Any, **parameters: Any) -> Everything:
            nonlocal running, max_running
            running += 1
            max_running = max(max_running, running)
            if running == concurrency:
                full.set()
            await full.wait()  # would hang with fewer concurrent requests
            running -= 1
            return Everything(
                image_id="id", width=1, height=1, weights=WEIGHTS, engine=ENGINE, model_version=1, masks=[]
            )

        client = cast(AsyncClient, SimpleNamespace(everything=everything))
        folders = BatchFolders(tmp_path, Records(tmp_path / "records"), tmp_path / "overlays", draw=False)
        jobs: dict[str, dict[str, Any]] = {name: {"everything": {}} for name in names}
        await BatchRunner(client, INFO, folders, state).run(jobs, concurrency, on_image=lambda: None)

    state = BatchState(len(names))
    asyncio.run(run())
    assert max_running == concurrency
    assert state.done == names
