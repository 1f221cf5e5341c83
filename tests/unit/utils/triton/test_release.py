"""An old Triton is a warning where other machines can reach it."""

import pytest

from utils.triton.release import age_warning, public_addresses
from utils.triton.runner import server_flags

BENTOML = ["server", "--allow-grpc=False", "--http-address=127.0.0.1", "--http-port=12345"]
OPENED = ["--allow-grpc=true", "--grpc-address=0.0.0.0", "--grpc-port=8001"]


@pytest.mark.parametrize(
    ("arguments", "addresses"),
    [
        ([], ["grpc 0.0.0.0", "metrics 0.0.0.0", "http 0.0.0.0"]),
        ([*BENTOML, *server_flags()], []),
        ([*BENTOML, *OPENED], ["grpc 0.0.0.0"]),
        ([*BENTOML, *OPENED, "--grpc-address=127.0.0.1"], []),
        ([*BENTOML, "--http-address=10.0.0.5"], ["metrics 10.0.0.5", "http 10.0.0.5"]),
        ([*BENTOML, "--http-address=::1", "--metrics-address=::"], ["metrics ::"]),
        ([*BENTOML, "--http-address=localhost"], []),
        ([*BENTOML, "--http-address=box", "--allow-metrics=0"], ["http box"]),
    ],
)
def test_public_addresses_are_those_of_the_last_flags_and_tritons_defaults(arguments, addresses):
    assert public_addresses(arguments) == addresses


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("2.51.0", True), ("2.70.1", True), ("2.71.0", False), ("3.0.0", False), ("", False)],
)
def test_old_release_on_a_public_address_is_warned_of(version, is_old):
    warning = age_warning(version, [*BENTOML, *OPENED])
    assert ("26.07" in warning and "grpc 0.0.0.0" in warning) == is_old
    assert bool(warning) == is_old
    assert not age_warning(version, BENTOML)
