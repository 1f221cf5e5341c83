"""API keys: whose they are, from a variable or from a file that is read again when it changes.

Each entry is `NAME:KEY`. Entries of one NAME are keys of one caller: the old and the new one while a key is replaced.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from utils.errors import Unauthorized

API_KEYS, ADMIN_KEYS = "MOBILE_SAM_API_KEYS", "MOBILE_SAM_ADMIN_KEYS"
"""The variables; those that name a file in their place end in `_FILE`."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
SHORTEST_KEY = 16
KEY = re.compile(r"[!-+\--~]+")
"""Printable ASCII without the space and the comma."""
BETWEEN_LOOKS = 1.0
"""Seconds between two looks at whether the file has changed."""
EXPECTED = "expected a header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"

Keys = tuple[tuple[bytes, str], ...]
"""SHA-256 digest and name of each."""
State = tuple[int, ...]
"""Time of change (ns), size and inode of a file; empty where there is none."""

logger = logging.getLogger("bentoml.mobile_sam")


class KeysError(ValueError):
    """No keys can be had from the variable or the file; the message says where and why, and shows no key."""


class ApiKeys:
    """The keys that are known now, of which only digests are kept."""

    def __init__(
        self,
        keys: Keys,
        file: tuple[str, Path] | None = None,
        state: State = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know these keys; `ApiKeys.of` reads them.

        Args:
            keys: digest and name of each.
            file: where they come from, and where later ones do, behind the variable that names it.
            state: of the file when it was read.
            clock: seconds, from any start.
        """
        self._keys, self._clock = keys, clock
        self._file = file
        self._read_state = state
        self._refused_state: State | None = None
        self._next_look = clock() + BETWEEN_LOOKS

    @classmethod
    def of(
        cls,
        text: str | None,
        file: Path | None,
        clock: Callable[[], float] = time.monotonic,
        variable: str = API_KEYS,
    ) -> ApiKeys | None:
        """The keys in the text of a variable, separated by commas, or in the file that `variable`_FILE names.

        The file has one entry on each line; blank lines and those that begin with # say nothing.

        Returns:
            None where neither is set.

        Raises:
            KeysError: both are set, or what is set holds no key, or an entry is none.
        """
        if text is not None and file is not None:
            raise KeysError(f"expected one of {variable} and {variable}_FILE, got both")
        if text is not None:
            return cls(_parse(variable, "entry", text.split(",")), clock=clock)
        if file is None:
            return None
        variable += "_FILE"
        keys, state, mode = _read(variable, file)
        if mode & 0o007:
            logger.warning(
                "%s %s: expected a file that only its owner and group may use, got mode %03o",
                variable,
                file,
                mode & 0o777,
            )
        return cls(keys, (variable, file), state, clock)

    def name_of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The name of the key that came with a request.

        Args:
            headers: name, in lower case, and value of each, as ASGI has them.

        Raises:
            Unauthorized: no key came, or one that is not known, or more than one.
        """
        digest = hashlib.sha256(_key(headers)).digest()
        self._look()
        name = None
        for known, its_name in self._keys:  # all of them: how long it takes says nothing about which
            if hmac.compare_digest(digest, known):
                name = its_name
        if name is None:
            raise Unauthorized(f"{EXPECTED}, got a key that is not known")
        return name

    def shares_one_with(self, other: ApiKeys) -> bool:
        """Whether a key is in both."""
        return bool({digest for digest, _ in self._keys} & {digest for digest, _ in other._keys})

    def _look(self) -> None:
        """Read the file again if it has changed; the keys stay as they are where that fails, which is told once."""
        if self._file is None or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + BETWEEN_LOOKS
        try:
            state = _state(self._file[1].stat())
        except OSError:
            state = ()
        if state != self._read_state:
            try:
                self._keys, state, _ = _read(*self._file)
            except KeysError as error:
                # Read again at each look: a change of permissions mends it, and shows in no state.
                if state != self._refused_state:
                    logger.error("%s; the keys from before stay", error)
                self._refused_state = state
                return
            names = sorted({name for _, name in self._keys})
            logger.info("%s read again: %d key(s) of %s", self._file[1], len(self._keys), ", ".join(names))
        self._read_state, self._refused_state = state, None


def _key(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The one key among the headers of a request."""
    authorization, x_api_key = [], []
    for header, value in headers:
        if header == b"authorization":
            authorization.append(value.strip())
        elif header == b"x-api-key":
            x_api_key.append(value.strip())
    if len(authorization) > 1 or len(x_api_key) > 1:
        raise Unauthorized(f"{EXPECTED}, got one of them twice")
    pairs = [value.partition(b" ") for value in authorization]
    keys = {key.strip() for scheme, _, key in pairs if scheme.lower() == b"bearer"} | set(x_api_key)
    keys.discard(b"")
    if len(keys) > 1:
        raise Unauthorized(f"{EXPECTED}, got two different keys")
    if keys:
        return keys.pop()
    if any(scheme.lower() not in {b"", b"bearer"} for scheme, _, _ in pairs):
        raise Unauthorized(f"{EXPECTED}, got an Authorization of another scheme")
    raise Unauthorized(f"{EXPECTED}, got no key")


def _read(variable: str, file: Path) -> tuple[Keys, State, int]:
    """The keys of a file that a variable names, its state as they were read, and its mode."""
    where = f"{variable} {file}"
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            text = opened.read().decode("utf-8-sig")
    except OSError as error:
        raise KeysError(f"{where}: expected a file that can be read, got {error.strerror!r}") from None
    except UnicodeDecodeError:
        raise KeysError(f"{where}: expected UTF-8 text, got other bytes") from None
    lines = ["" if line.lstrip().startswith("#") else line for line in text.split("\n")]
    return _parse(where, "line", lines), _state(status), status.st_mode


def _state(status: os.stat_result) -> State:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _parse(source: str, unit: str, entries: Iterable[str]) -> Keys:
    """Digest and name of each key; `source` and `unit` (line or entry) say in errors where something stands."""
    names: dict[bytes, str] = {}
    for number, entry in enumerate(entries, 1):
        if not entry.strip():
            continue
        where = f"{source}, {unit} {number}"
        name, colon, key = entry.strip().partition(":")
        if not colon:
            raise KeysError(f"{where}: expected NAME:KEY, got no colon")
        if not NAME.fullmatch(name):
            raise KeysError(f"{where}: expected a NAME of 1 to 64 of A-Z a-z 0-9 . _ -, got other characters or length")
        if len(key) < SHORTEST_KEY:
            raise KeysError(f"{where}: expected a KEY of at least {SHORTEST_KEY} characters, got {len(key)}")
        if not KEY.fullmatch(key):
            raise KeysError(f"{where}: expected a KEY of printable ASCII without space or comma, got other characters")
        owner = names.setdefault(hashlib.sha256(key.encode()).digest(), name)
        if owner != name:
            raise KeysError(f"{where}: expected a KEY of {name}'s own, got one of {owner}")
    if not names:
        raise KeysError(f"{source}: expected at least one NAME:KEY, got none")
    return tuple(names.items())
