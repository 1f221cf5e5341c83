"""Triton's age: a warning where a release with known vulnerabilities can be reached from other
machines.
"""

import ipaddress
from collections.abc import Sequence

PATCHED_VERSION, PATCHED_RELEASE = (2, 71), "26.07"
"""First release without the vulnerabilities in docs/security.md, by Triton's numbers and by
NVIDIA's."""
DEFAULT_ADDRESS = "0.0.0.0"  # noqa: S104  (Triton's own)


def age_warning(version: str, arguments: Sequence[str]) -> str:
    """Return a warning for the log, or an empty string for a current Triton or one that listens on
    loopback only.

    Args:
        version: Triton's version, such as 2.51.0; empty if it is unknown.
        arguments: command line of `tritonserver`.
    """
    number = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    addresses = public_addresses(arguments)
    if not addresses or not number or number >= PATCHED_VERSION:
        return ""
    return (
        f"Triton {version} has vulnerabilities that {PATCHED_RELEASE} has fixed, and listens on"
        f" {', '.join(addresses)}: let it listen on 127.0.0.1 only, or put a newer tritonserver on"
        " PATH (docs/security.md#the-embedded-triton)"
    )


def flags(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of `--name=value` arguments by name; the last one counts."""
    return dict(argument.lstrip("-").partition("=")[::2] for argument in arguments)


def public_addresses(arguments: Sequence[str]) -> list[str]:
    """Return protocols and addresses, other than loopback, on which a `tritonserver` with these
    arguments listens.
    """
    options = flags(arguments)
    http = options.get("http-address", DEFAULT_ADDRESS)
    public = []
    for protocol, default in (("grpc", DEFAULT_ADDRESS), ("metrics", http), ("http", http)):
        address = options.get(f"{protocol}-address", default)
        if options.get(f"allow-{protocol}", "true").lower() in ("true", "1") and not _is_loopback(
            address
        ):
            public.append(f"{protocol} {address}")
    return public


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
