"""API keys from a variable or a file, and their lookup in requests."""

from __future__ import annotations

import base64
import hmac
import logging
import os
from unittest.mock import Mock

import pytest

from utils.api.errors import Unauthorized
from utils.edge.keys import ApiKeys, KeysError

OPS, OPS_OLD, WEB = "ops-key-0123456789", "ops-key-9876543210", "web-key-0123456789"
UNKNOWN = "unknown-0123456789"


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "keys"
    write(path, f"ops:{OPS}\n")
    return path


@pytest.fixture
def log(caplog):
    """Return a function that returns level and text of the logged lines."""
    caplog.set_level(logging.INFO, "bentoml.mobile_sam")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def write(path, text):
    """Replace a file atomically, as a mounted secret does."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh.chmod(0o600)
    fresh.replace(path)


def with_key(key):
    return [(b"x-api-key", key.encode())]


def name_of(keys, key):
    """Return the name of a key, None if it is unknown."""
    try:
        return keys.name_of(with_key(key))
    except Unauthorized:
        return None


def refusal(keys, headers):
    """Return the last part of the message about these headers."""
    with pytest.raises(Unauthorized) as caught:
        keys.name_of(headers)
    assert caught.value.detail.startswith("expected a header 'Authorization: Bearer KEY' or 'X-API-Key: KEY', got ")
    return caught.value.detail.split(", got ", 1)[1]


def test_no_keys_without_variable_and_file():
    assert ApiKeys.of(None, None) is None


def test_keys_from_the_variable_have_their_names():
    keys = ApiKeys.of(f"ops:{OPS}, web:{WEB},", None)
    assert name_of(keys, OPS) == "ops"
    assert name_of(keys, WEB) == "web"
    assert name_of(keys, UNKNOWN) is None


def test_keys_from_a_file_have_their_names(file):
    write(file, f"\ufeff# keys of März\r\n\r\nops:{OPS}\r\n  # another\n\tweb:{WEB}  \n")
    keys = ApiKeys.of(None, file)
    assert name_of(keys, OPS) == "ops"
    assert name_of(keys, WEB) == "web"
    assert name_of(keys, UNKNOWN) is None


def test_name_may_have_several_keys():
    keys = ApiKeys.of(f"ops:{OPS_OLD},ops:{OPS},ops:{OPS}", None)
    assert name_of(keys, OPS_OLD) == name_of(keys, OPS) == "ops"


def test_key_may_have_any_printable_character_but_the_comma():
    key = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != ",")
    assert name_of(ApiKeys.of(f"ops:{key}", None), key) == "ops"


INVALID_ENTRIES = {
    "no-name-and-colon": (UNKNOWN, "expected NAME:KEY, got no colon"),
    "empty-name": (f":{UNKNOWN}", "expected a NAME of 1 to 64"),
    "long-name": (f"{65 * 'a'}:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "name-with-space": (f"o ps:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "non-ascii-name": (f"öps:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "empty-key": ("web:", "expected a KEY of at least 16 characters, got 0"),
    "short-key": (f"web:{UNKNOWN[:15]}", "expected a KEY of at least 16 characters, got 15"),
    "space-before-key": (f"web: {UNKNOWN}", "expected a KEY of printable ASCII"),
    "tab-in-key": (f"web:{UNKNOWN}\t{UNKNOWN}", "expected a KEY of printable ASCII"),
    "comment-after-key": (f"web:{UNKNOWN} # new", "expected a KEY of printable ASCII"),
    "non-ascii-key": (f"web:{UNKNOWN}é", "expected a KEY of printable ASCII"),
    "control-character": (f"web:{UNKNOWN}\x7f", "expected a KEY of printable ASCII"),
    "key-of-another-name": (f"web:{OPS}", "expected a KEY that no other name has, got the key of ops"),
}


@pytest.mark.parametrize(("entry", "message"), INVALID_ENTRIES.values(), ids=INVALID_ENTRIES.keys())
def test_error_about_an_entry_names_its_position_and_shows_no_key(file, entry, message):
    write(file, f"ops:{OPS}\n# comment\n{entry}\n")
    with pytest.raises(KeysError) as of_file:
        ApiKeys.of(None, file)
    with pytest.raises(KeysError) as of_variable:
        ApiKeys.of(f"ops:{OPS},{entry}", None)
    assert str(of_file.value).startswith(f"MOBILE_SAM_API_KEYS_FILE {file}, line 3: {message}")
    assert str(of_variable.value).startswith(f"MOBILE_SAM_API_KEYS, entry 2: {message}")
    for error in (of_file, of_variable):
        assert not any(key[:10] in str(error.value) for key in (OPS, UNKNOWN))


def test_comma_in_a_file_is_refused(file):
    write(file, f"ops:{OPS},web:{WEB}\n")
    with pytest.raises(KeysError, match=r"line 1: expected a KEY of printable ASCII without space or comma"):
        ApiKeys.of(None, file)


@pytest.mark.parametrize("text", ["", " ", ",", " ,\n, "])
def test_variable_without_a_key_is_refused(text):
    with pytest.raises(KeysError, match=r"^MOBILE_SAM_API_KEYS: expected at least one NAME:KEY, got none$"):
        ApiKeys.of(text, None)


@pytest.mark.parametrize("text", ["", "\n\n", f"# ops:{OPS}"])
def test_file_without_a_key_is_refused(file, text):
    write(file, text)
    with pytest.raises(KeysError, match=r"^MOBILE_SAM_API_KEYS_FILE .*keys: expected at least one NAME:KEY, got none$"):
        ApiKeys.of(None, file)


def test_unreadable_file_is_refused(tmp_path):
    with pytest.raises(KeysError, match=r"nowhere: expected a readable file, got 'No such file or directory'"):
        ApiKeys.of(None, tmp_path / "nowhere")
    with pytest.raises(KeysError, match=r"expected a readable file, got 'Is a directory'"):
        ApiKeys.of(None, tmp_path)


def test_file_that_is_not_utf_8_is_refused(file):
    write(file, b"ops:\xff" + OPS.encode())
    with pytest.raises(KeysError, match=r"keys: expected UTF-8 text, got other bytes$"):
        ApiKeys.of(None, file)


def test_variable_and_file_together_are_refused(file):
    with pytest.raises(
        KeysError, match=r"^expected one of MOBILE_SAM_API_KEYS and MOBILE_SAM_API_KEYS_FILE, got both$"
    ):
        ApiKeys.of(f"ops:{OPS}", file)


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o660, 0), (0o604, 1), (0o662, 1), (0o644, 1)])
def test_file_that_others_can_access_is_warned_about(file, log, mode, warnings):
    file.chmod(mode)
    keys = ApiKeys.of(None, file)
    assert name_of(keys, OPS) == "ops"
    assert [level for level, _ in log()] == warnings * ["WARNING"]
    assert all(f"got mode {mode:03o}" in text for _, text in log())


ACCEPTED = {
    "bearer": [(b"authorization", b"Bearer " + OPS.encode())],
    "bearer-in-mixed-case": [(b"authorization", b"bEARER   " + OPS.encode())],
    "x-api-key": [(b"x-api-key", OPS.encode())],
    "both-with-the-same-key": [(b"authorization", b"Bearer " + OPS.encode()), (b"x-api-key", OPS.encode())],
    "x-api-key-and-another-scheme": [(b"authorization", b"Basic dXNlcjpwYXNz"), (b"x-api-key", OPS.encode())],
    "token": [(b"token", OPS.encode())],
    "password-of-a-user": [(b"authorization", b"Basic " + base64.b64encode(f"anyone:{OPS}".encode()))],
    "user-without-password": [(b"authorization", b"basic " + base64.b64encode(f"{OPS}:".encode()))],
    "among-other-headers": [(b"host", b"localhost"), (b"x-api-key", OPS.encode()), (b"accept", b"*/*")],
}


@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_key_is_read_from_either_header(headers):
    keys = ApiKeys.of(f"web:{WEB},ops:{OPS}", None)
    assert keys is not None
    assert keys.name_of(iter(headers)) == "ops"


REFUSED = {
    "no-headers": ([(b"host", b"localhost")], "no key"),
    "empty-key": ([(b"x-api-key", b" ")], "no key"),
    "bearer-without-key": ([(b"authorization", b"Bearer ")], "no key"),
    "empty-authorization": ([(b"authorization", b"")], "no key"),
    "another-scheme": ([(b"authorization", b"Digest dXNlcjpwYXNz")], "an Authorization header of another scheme"),
    "unknown-password": ([(b"authorization", b"Basic dXNlcjpwYXNz")], "an unknown key"),
    "basic-without-base64": ([(b"authorization", b"Basic user:pass")], "Basic credentials that are not base64"),
    "empty-password": ([(b"authorization", b"Basic Og==")], "an unknown key"),
    "no-scheme": ([(b"authorization", OPS.encode())], "an Authorization header of another scheme"),
    "unknown-key": ([(b"x-api-key", UNKNOWN.encode())], "an unknown key"),
    "name-and-key": ([(b"x-api-key", f"ops:{OPS}".encode())], "an unknown key"),
    "prefix-of-a-key": ([(b"x-api-key", OPS[:-1].encode())], "an unknown key"),
    "not-text": ([(b"x-api-key", b"\xff\x00" * 9)], "an unknown key"),
    "x-api-key-twice": (2 * with_key(OPS), "one of these headers twice"),
    "authorization-twice": (2 * [(b"authorization", b"Bearer " + OPS.encode())], "one of these headers twice"),
    "two-keys": (
        [(b"authorization", b"Bearer " + OPS.encode()), (b"x-api-key", WEB.encode())],
        "two different keys",
    ),
}


@pytest.mark.parametrize(("headers", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_error_about_headers_says_what_is_wrong_and_shows_no_key(headers, message):
    assert refusal(ApiKeys.of(f"ops:{OPS},web:{WEB}", None), headers) == message


def test_key_is_compared_with_all_known_keys(monkeypatch):
    keys = ApiKeys.of(f"ops:{OPS},ops:{OPS_OLD},web:{WEB}", None)
    compared = []
    compare = hmac.compare_digest

    def recording(received, known):
        compared.append(known)
        return compare(received, known)

    monkeypatch.setattr(hmac, "compare_digest", recording)
    for key in (OPS, WEB, UNKNOWN):
        compared.clear()
        name_of(keys, key)
        assert len(set(compared)) == 3


def test_keys_are_not_kept_in_plain_text(file):
    for keys in (ApiKeys.of(f"ops:{OPS}", None), ApiKeys.of(None, file)):
        assert OPS not in repr(vars(keys))


def test_changed_file_is_reloaded(file, clock, log):
    keys = ApiKeys.of(None, file, clock)
    write(file, f"ops:{OPS}\nops:{OPS_OLD}\nweb:{WEB}\n")
    clock.now += 1.5
    assert [name_of(keys, key) for key in (OPS, OPS_OLD, WEB)] == ["ops", "ops", "web"]
    assert log() == [("INFO", f"reloaded {file}: 3 key(s) of ops, web")]
    write(file, f"web:{WEB}\n")
    clock.now += 1.5
    assert [name_of(keys, key) for key in (OPS, OPS_OLD, WEB)] == [None, None, "web"]
    assert len(log()) == 2


def test_file_is_checked_once_a_second(file, clock):
    keys = ApiKeys.of(None, file, clock)
    write(file, f"web:{WEB}\n")
    clock.now += 0.9
    assert name_of(keys, WEB) is None
    clock.now += 0.2
    assert name_of(keys, WEB) == "web"
    write(file, f"ops:{OPS}\n")
    clock.now += 0.9
    assert name_of(keys, OPS) is None
    clock.now += 0.2
    assert name_of(keys, OPS) == "ops"


def test_unchanged_file_is_not_reloaded(file, clock, log, monkeypatch):
    keys = ApiKeys.of(None, file, clock)
    monkeypatch.setattr("utils.edge.keys._read", lambda file: pytest.fail("reloaded"))
    for _ in range(3):
        clock.now += 2
        assert name_of(keys, OPS) == "ops"
    assert log() == []


def write_as_of_1970(path, text):
    path.write_text(text)
    os.utime(path, (0, 0))


CHANGES = {
    "another-size": lambda file: file.write_text(f"# now\nweb:{WEB}\n"),
    "another-time": lambda file: write_as_of_1970(file, f"web:{WEB}\n"),
    "another-inode": lambda file: write(file, f"web:{WEB}\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_change_of_size_time_or_inode_is_noticed(file, clock, change):
    keys = ApiKeys.of(None, file, clock)
    change(file)
    clock.now += 2
    assert name_of(keys, WEB) == "web"


DAMAGES = {
    "missing": lambda file: file.unlink(),
    "folder": lambda file: (file.unlink(), file.mkdir()),
    "empty": lambda file: write(file, ""),
    "malformed": lambda file: write(file, f"web:{WEB}\nnonsense\n"),
    "not-text": lambda file: write(file, b"\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_previous_keys_stay_if_the_file_becomes_invalid(file, clock, log, damage):
    keys = ApiKeys.of(None, file, clock)
    damage(file)
    for _ in range(3):
        clock.now += 2
        assert name_of(keys, OPS) == "ops"
        assert name_of(keys, WEB) is None
    ((level, text),) = log()
    assert level == "ERROR"
    assert text.startswith(f"MOBILE_SAM_API_KEYS_FILE {file}")
    assert text.endswith("; keeping the previous keys")


def test_each_invalid_state_is_logged_once_and_a_valid_file_is_used_again(file, clock, log):
    keys = ApiKeys.of(None, file, clock)
    for text, level in (("bad", "ERROR"), ("as bad", "ERROR"), (f"web:{WEB}\n", "INFO"), ("bad", "ERROR")):
        write(file, text)
        for _ in range(2):
            clock.now += 2
            name_of(keys, WEB)
        assert log()[-1][0] == level
    assert len(log()) == 4
    assert name_of(keys, WEB) == "web"


def test_file_that_goes_missing_twice_is_logged_twice(file, clock, log, tmp_path):
    keys = ApiKeys.of(None, file, clock)
    for _ in range(2):
        file.rename(tmp_path / "elsewhere")
        clock.now += 2
        assert name_of(keys, OPS) == "ops"
        (tmp_path / "elsewhere").rename(file)
        clock.now += 2
        assert name_of(keys, OPS) == "ops"
    assert [level for level, _ in log()] == ["ERROR", "ERROR"]


def test_unreadable_file_is_used_once_it_is_readable(file, clock, log, monkeypatch):
    keys = ApiKeys.of(None, file, clock)
    write(file, f"web:{WEB}\n")
    with monkeypatch.context() as patched:  # stands for permissions, which do not bind root
        patched.setattr("utils.edge.keys._read", Mock(side_effect=KeysError("Permission denied")))
        for _ in range(2):
            clock.now += 2
            assert name_of(keys, WEB) is None
    clock.now += 2
    assert name_of(keys, WEB) == "web"
    assert [level for level, _ in log()] == ["ERROR", "INFO"]
