"""A short form of `make chaos`: a newcomer is served beside several attackers; speed is not
checked.
"""

from functools import partial
from pathlib import Path

import pytest
import requests

from harness import serving
from tests.chaos.callers import click, photo
from tests.chaos.newcomer import Newcomer, Seen
from tests.chaos.scenarios.sharing import ATTACKS, AnAttack, Attack, beside, ipv4, successes

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ATTACK_S = 8.0
ATTACKERS = 4
RATE = 3


def has_all_kinds(seen: Seen, attack: Attack) -> bool:
    """Return whether the newcomer has sent requests of each kind: not if this process stood still
    until the attack was almost over.
    """
    kinds = [seen.clicks, seen.probes, seen.embeds, *([seen.asked] if attack.ask else [])]
    return all(replies.all for replies in kinds)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_newcomer_is_never_refused_beside_attackers(
    attack: AnAttack, builtin_repository: Path, tmp_path: Path
):
    with attack() as chosen:
        settings = {"MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository), **chosen.settings}
        with serving(tmp_path / "log", **settings) as server:
            newcomer = Newcomer(server.port, chosen.ask, dict(chosen.headers))
            addresses = ipv4(ATTACKERS)
            attack_once = partial(
                beside, newcomer, chosen, server.port, addresses, ATTACKERS, seconds=ATTACK_S
            )
            seen, attempts = attack_once()
            while not has_all_kinds(seen, chosen):
                seen, attempts = attack_once()
            of_attackers = f"attackers: {dict(attempts)}"
            assert successes(attempts) >= ATTACKERS // 2, of_attackers
            assert {*seen.clicks.reasons()} == {"ok"}, of_attackers
            assert {*seen.probes.reasons()} == {"ok"}, of_attackers
            assert {*seen.embeds.reasons()} == {"ok"}, of_attackers
            if chosen.ask:
                assert {*seen.asked.reasons()} == {"ok"}, of_attackers


def test_addresses_of_one_ipv6_network_are_one_caller(builtin_repository: Path, tmp_path: Path):
    settings = {
        "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository),
        "MOBILE_SAM_RATE_LIMIT": f"{RATE}/hour",
    }
    with serving(tmp_path / "log", **settings) as server:

        def status(address: str) -> int:
            request = click(photo(1), {"X-Forwarded-For": address})
            return requests.post(
                server.url + request.path, request.body, headers=dict(request.headers), timeout=60
            ).status_code

        statuses = [status(f"2001:db8::{number + 1}") for number in range(RATE + 1)]
        assert statuses == [200] * RATE + [429]
        assert status("2001:db8:0:1::1") == 200
        assert status("192.0.2.1") == 200
