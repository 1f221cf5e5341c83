"""Many images at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mobile_sam_client import AsyncClient, Engine, Everything, Info, Weights
from mobile_sam_client._commands.records import Records
from mobile_sam_client._commands.work import Places, Tally, Work

WEIGHTS = Weights("none", "0" * 64, True, "")
ENGINE = Engine("an encoder", "a decoder")
INFO = Info("1", WEIGHTS, ENGINE, False, 10, 10, 10, (1,))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_images_are_asked_about_at_once_as_told(tmp_path, concurrency):
    names = [f"{number}.png" for number in range(6)]
    for name in names:
        (tmp_path / name).write_bytes(b"image")
    together, most = 0, 0

    async def run() -> None:
        full = asyncio.Event()

        async def everything(*_: Any, **parameters: Any) -> Everything:
            nonlocal together, most
            together += 1
            most = max(most, together)
            if together == concurrency:
                full.set()
            await full.wait()  # for ever, were they fewer
            together -= 1
            return Everything(
                image_id="id", width=1, height=1, weights=WEIGHTS, engine=ENGINE, model_version=1, masks=[]
            )

        client = cast(AsyncClient, SimpleNamespace(everything=everything))
        places = Places(tmp_path, Records(tmp_path / "records"), tmp_path / "overlays", draw=False)
        await Work(client, INFO, places, tally).run({name: {"everything": {}} for name in names}, concurrency, seen.set)

    tally, seen = Tally(len(names)), asyncio.Event()
    asyncio.run(run())
    assert most == concurrency
    assert tally.done == names
