"""API keys, from a variable or from a file that is reloaded when it changes.

Each entry is `NAME:KEY`, or `NAME:KEY RATE` with a rate limit for this caller alone, such as
`10/second; 2000/hour`. Entries with the same NAME belong to one caller, such as an old and a new
key during rotation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from utils.edge.rate import EXAMPLE, Rates, parse_rates
from utils.errors import Unauthorized
from utils.observability.logs import logger
from utils.observability.outage import Outage
from utils.settings import SettingsError

API_KEYS, ADMIN_KEYS = "MOBILE_SAM_API_KEYS", "MOBILE_SAM_ADMIN_KEYS"
"""Environment variables; with the suffix `_FILE` they name a file instead."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
MIN_KEY_LENGTH = 16
KEY = re.compile(r"[!-+\--~]+")
"""Printable ASCII without the space and the comma."""
CHECK_INTERVAL_S = 1.0
"""Time between two checks of the file for changes."""
KEY_HEADERS = (b"x-api-key", b"token")
"""Headers with the key as their whole value; annotation tools send the second one, or the key as
a password."""


@dataclass(frozen=True)
class KeyList:
    """The entries of a variable or a file."""

    names: tuple[tuple[bytes, str], ...]
    """SHA-256 digest and name of each key."""
    rates: Mapping[str, Rates]
    """Rate limits of the names that have limits of their own."""


class ApiKeys:
    """Known API keys, kept as digests only."""

    @classmethod
    def from_setting(
        cls,
        text: str | None,
        file: Path | None,
        clock: Callable[[], float] = time.monotonic,
        variable: str = API_KEYS,
    ) -> ApiKeys | None:
        """Read keys from the value of `variable`, or from the file that `variable`_FILE names.

        The value has entries separated by commas. The file has one entry per line; blank lines and
        lines that start with # are ignored. The limits of a rate are separated by semicolons.

        Returns:
            None if neither is set.

        Raises:
            SettingsError: both are set, there is no key, or an entry is not valid. No message
                contains a key.
        """
        if text is not None and file is not None:
            raise SettingsError(f"expected one of {variable} and {variable}_FILE, got both")
        source = text if file is None else file
        return None if source is None else cls(source, clock, variable)

    def __init__(self, source: str | Path, clock: Callable[[], float], variable: str) -> None:
        """Read keys from a variable's value or a file, as `from_setting`."""
        self._file = source if isinstance(source, Path) else None  # keys themselves are not kept
        self._clock, self._variable = clock, variable
        self._keys = _load(variable, source)
        self._next_check = clock() + CHECK_INTERVAL_S
        self._outage = Outage(f"{variable}_FILE {source} can be used again")
        if self._file and (mode := self._file.stat().st_mode) & 0o007:
            expected = "expected a file that only its owner and group can access"
            logger.warning(
                "%s_FILE %s: %s, got mode %03o", variable, source, expected, mode & 0o777
            )

    def name_of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the name of the key in a request's ASGI headers: lower-case name and value of
        each.

        Raises:
            Unauthorized: there is no key, an unknown key, or more than one key.
        """
        digest = hashlib.sha256(_key(headers)).digest()
        self._reload_if_changed()
        name = None
        for (
            known,
            its_name,
        ) in self._keys.names:  # without a break: the time must not depend on the key
            if hmac.compare_digest(digest, known):
                name = its_name
        if name is None:
            raise Unauthorized("an unknown key")
        return name

    @property
    def names(self) -> list[str]:
        """Return the names in the order of the entries."""
        return list(dict.fromkeys(name for _, name in self._keys.names))

    def rates_of(self, name: str) -> Rates | None:
        """Return the rate limits that a name has of its own."""
        return self._keys.rates.get(name)

    def overlaps(self, other: ApiKeys) -> bool:
        """Return whether a key is in both lists."""
        digests = {digest for digest, _ in self._keys.names}
        return any(digest in digests for digest, _ in other._keys.names)

    def _reload_if_changed(self) -> None:
        """Read the file again at intervals; on failure keep the keys."""
        if self._file is None or self._clock() < self._next_check:
            return
        self._next_check = self._clock() + CHECK_INTERVAL_S
        try:
            keys = _load(self._variable, self._file)
        except SettingsError as error:
            self._outage.begin(f"{error}; keeping the previous keys")
            return
        self._outage.end()
        if keys != self._keys:
            names = sorted({name for _, name in keys.names})
            logger.info(
                "reloaded %s: %d key(s) of %s", self._file, len(keys.names), ", ".join(names)
            )
        self._keys = keys


def _key(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the only key in a request's headers."""
    values: dict[bytes, bytes] = {}
    for header, value in headers:
        if header in (b"authorization", *KEY_HEADERS):
            if header in values:
                raise Unauthorized("one of these headers twice")
            values[header] = value.strip()
    scheme, _, credentials = values.pop(b"authorization", b"").partition(b" ")
    scheme = scheme.lower()
    keys = set(values.values())
    if scheme == b"bearer":
        keys.add(credentials.strip())
    keys.discard(b"")
    if not keys and scheme == b"basic":  # beside another key, the credentials are a proxy's
        keys.add(_password(credentials.strip()))
    if len(keys) > 1:
        raise Unauthorized("two different keys")
    if keys:
        return keys.pop()
    if scheme not in {b"", b"bearer", b"basic"}:
        raise Unauthorized("an Authorization header of another scheme")
    raise Unauthorized("no key")


def _password(credentials: bytes) -> bytes:
    """Return the password, or without one the user name, of Basic credentials (RFC 7617)."""
    try:
        user, _, password = base64.b64decode(credentials, validate=True).partition(b":")
    except ValueError:
        raise Unauthorized("Basic credentials that are not base64") from None
    return password or user


def _load(variable: str, source: str | Path) -> KeyList:
    """Return the keys in a variable's value, or in the file that `variable`_FILE names."""
    if isinstance(source, str):
        return _parse(variable, "entry", source.split(","))
    where = f"{variable}_FILE {source}"
    try:
        text = source.read_text("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{where}: expected a readable file, got {error.strerror!r}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{where}: expected UTF-8 text, got other bytes") from None
    return _parse(
        where, "line", ["" if line.lstrip().startswith("#") else line for line in text.split("\n")]
    )


def _parse(source: str, unit: str, entries: Iterable[str]) -> KeyList:
    """Return the digest and name of each key, and the rates of the names.

    Args:
        source: variable or file, for error messages.
        unit: "line" or "entry", for error messages.
        entries: texts of the form NAME:KEY or NAME:KEY RATE; blank ones are ignored.
    """
    names: dict[bytes, str] = {}
    rates: dict[str, Rates] = {}
    for number, entry in enumerate(entries, 1):
        if not entry.strip():
            continue
        where = f"{source}, {unit} {number}"
        name, colon, rest = entry.strip().partition(":")
        if not colon:
            raise SettingsError(f"{where}: expected NAME:KEY, got no colon")
        if not NAME.fullmatch(name):
            raise SettingsError(
                f"{where}: expected a NAME of 1 to 64 of A-Z a-z 0-9 . _ -, got other characters or"
                " length"
            )
        key, *more = re.split(r"\s+", rest, maxsplit=1)
        _check_key(where, key)
        if more:
            rates[name] = _rates(where, name, more[0], rates.get(name))
        owner = names.setdefault(hashlib.sha256(key.encode()).digest(), name)
        if owner != name:
            raise SettingsError(
                f"{where}: expected a KEY that no other name has, got the key of {owner}"
            )
    if not names:
        raise SettingsError(f"{source}: expected at least one NAME:KEY, got none")
    if rates and source.startswith(ADMIN_KEYS):
        raise SettingsError(
            f"{source}: expected NAME:KEY, got a rate limit, which operators do not have"
        )
    return KeyList(tuple(names.items()), rates)


def _check_key(where: str, key: str) -> None:
    if len(key) < MIN_KEY_LENGTH:
        raise SettingsError(
            f"{where}: expected a KEY of at least {MIN_KEY_LENGTH} characters, got {len(key)}"
        )
    if not KEY.fullmatch(key):
        raise SettingsError(
            f"{where}: expected a KEY of printable ASCII without space or comma, got other"
            " characters"
        )


def _rates(where: str, name: str, text: str, others: Rates | None) -> Rates:
    """Return the rates after a key; `others` are those after another key of the same name.

    No error has the text: it may be a part of a key that has a space.
    """
    rates = parse_rates(text)
    if rates is None:
        raise SettingsError(
            f"{where}: expected nothing after the KEY, or a rate such as {EXAMPLE}, got other text"
        )
    if others not in (None, rates):
        raise SettingsError(f"{where}: expected one rate for all keys of {name}, got two")
    return rates
