"""API keys from a variable or a file, and whose key came with a request."""

from __future__ import annotations

import hmac
import logging
import os
from unittest.mock import Mock

import pytest

from utils.edge.keys import ApiKeys, KeysError
from utils.errors import Unauthorized

OPS, OPS_OLD, WEB = "ops-key-0123456789", "ops-key-9876543210", "web-key-0123456789"
UNKNOWN = "unknown-0123456789"


class Clock:
    """Seconds that pass when they are told to."""

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
    """Level and text of what was logged."""
    caplog.set_level(logging.INFO, "bentoml.mobile_sam")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def write(path, text):
    """Replace a file in one step, as a careful person or a mounted secret does."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh.chmod(0o600)
    fresh.replace(path)


def with_key(key):
    return [(b"x-api-key", key.encode())]


def who(keys, key):
    """The name of a key, None where it is not known."""
    try:
        return keys.name_of(with_key(key))
    except Unauthorized:
        return None


def refusal(keys, headers):
    """What is said of these headers."""
    with pytest.raises(Unauthorized) as caught:
        keys.name_of(headers)
    assert caught.value.detail.startswith("expected a header 'Authorization: Bearer KEY' or 'X-API-Key: KEY', got ")
    return caught.value.detail.split(", got ", 1)[1]


def test_without_variable_and_file_there_are_no_keys():
    assert ApiKeys.of(None, None) is None


def test_the_keys_of_the_variable_are_known_by_their_names():
    keys = ApiKeys.of(f"ops:{OPS}, web:{WEB},", None)
    assert who(keys, OPS) == "ops"
    assert who(keys, WEB) == "web"
    assert who(keys, UNKNOWN) is None


def test_the_keys_of_a_file_are_known_by_their_names(file):
    write(file, f"\ufeff# keys of März\r\n\r\nops:{OPS}\r\n  # another\n\tweb:{WEB}  \n")
    keys = ApiKeys.of(None, file)
    assert who(keys, OPS) == "ops"
    assert who(keys, WEB) == "web"
    assert who(keys, UNKNOWN) is None


def test_a_name_may_have_several_keys():
    keys = ApiKeys.of(f"ops:{OPS_OLD},ops:{OPS},ops:{OPS}", None)
    assert who(keys, OPS_OLD) == who(keys, OPS) == "ops"


def test_a_key_may_have_any_printable_character_but_the_comma():
    key = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != ",")
    assert who(ApiKeys.of(f"ops:{key}", None), key) == "ops"


ENTRIES = {
    "a key alone": (UNKNOWN, "expected NAME:KEY, got no colon"),
    "no name": (f":{UNKNOWN}", "expected a NAME of 1 to 64"),
    "a long name": (f"{65 * 'a'}:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "a name with a space": (f"o ps:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "a name that is no ASCII": (f"öps:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "no key": ("web:", "expected a KEY of at least 16 characters, got 0"),
    "a short key": (f"web:{UNKNOWN[:15]}", "expected a KEY of at least 16 characters, got 15"),
    "white space before the key": (f"web: {UNKNOWN}", "expected a KEY of printable ASCII"),
    "white space in the key": (f"web:{UNKNOWN}\t{UNKNOWN}", "expected a KEY of printable ASCII"),
    "a comment after the key": (f"web:{UNKNOWN} # new", "expected a KEY of printable ASCII"),
    "a key that is no ASCII": (f"web:{UNKNOWN}é", "expected a KEY of printable ASCII"),
    "a control character": (f"web:{UNKNOWN}\x7f", "expected a KEY of printable ASCII"),
    "the key of another": (f"web:{OPS}", "expected a KEY of web's own, got one of ops"),
}


@pytest.mark.parametrize(("entry", "said"), ENTRIES.values(), ids=ENTRIES.keys())
def test_an_entry_that_cannot_be_used_is_refused_by_its_place_and_not_shown(file, entry, said):
    write(file, f"ops:{OPS}\n# comment\n{entry}\n")
    with pytest.raises(KeysError) as of_file:
        ApiKeys.of(None, file)
    with pytest.raises(KeysError) as of_variable:
        ApiKeys.of(f"ops:{OPS},{entry}", None)
    assert str(of_file.value).startswith(f"MOBILE_SAM_API_KEYS_FILE {file}, line 3: {said}")
    assert str(of_variable.value).startswith(f"MOBILE_SAM_API_KEYS, entry 2: {said}")
    for error in (of_file, of_variable):
        assert not any(key[:10] in str(error.value) for key in (OPS, UNKNOWN))


def test_a_comma_in_a_key_of_a_file_is_refused(file):
    write(file, f"ops:{OPS},web:{WEB}\n")
    with pytest.raises(KeysError, match=r"line 1: expected a KEY of printable ASCII without space or comma"):
        ApiKeys.of(None, file)


@pytest.mark.parametrize("text", ["", " ", ",", " ,\n, "])
def test_a_variable_without_a_key_is_refused(text):
    with pytest.raises(KeysError, match=r"^MOBILE_SAM_API_KEYS: expected at least one NAME:KEY, got none$"):
        ApiKeys.of(text, None)


@pytest.mark.parametrize("text", ["", "\n\n", f"# ops:{OPS}"])
def test_a_file_without_a_key_is_refused(file, text):
    write(file, text)
    with pytest.raises(KeysError, match=r"^MOBILE_SAM_API_KEYS_FILE .*keys: expected at least one NAME:KEY, got none$"):
        ApiKeys.of(None, file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(KeysError, match=r"nowhere: expected a file that can be read, got 'No such file or directory'"):
        ApiKeys.of(None, tmp_path / "nowhere")
    with pytest.raises(KeysError, match=r"expected a file that can be read, got 'Is a directory'"):
        ApiKeys.of(None, tmp_path)


def test_a_file_that_is_no_text_is_refused(file):
    write(file, b"ops:\xff" + OPS.encode())
    with pytest.raises(KeysError, match=r"keys: expected UTF-8 text, got other bytes$"):
        ApiKeys.of(None, file)


def test_a_variable_and_a_file_together_are_refused(file):
    with pytest.raises(
        KeysError, match=r"^expected one of MOBILE_SAM_API_KEYS and MOBILE_SAM_API_KEYS_FILE, got both$"
    ):
        ApiKeys.of(f"ops:{OPS}", file)


@pytest.mark.parametrize(("mode", "told"), [(0o600, 0), (0o660, 0), (0o604, 1), (0o662, 1), (0o644, 1)])
def test_a_file_that_others_may_use_is_told_once(file, log, mode, told):
    file.chmod(mode)
    keys = ApiKeys.of(None, file)
    assert who(keys, OPS) == "ops"
    assert [level for level, _ in log()] == told * ["WARNING"]
    assert all(f"got mode {mode:03o}" in text for _, text in log())


ACCEPTED = {
    "bearer": [(b"authorization", b"Bearer " + OPS.encode())],
    "bearer in another case": [(b"authorization", b"bEARER   " + OPS.encode())],
    "x-api-key": [(b"x-api-key", OPS.encode())],
    "both with one key": [(b"authorization", b"Bearer " + OPS.encode()), (b"x-api-key", OPS.encode())],
    "another scheme beside x-api-key": [(b"authorization", b"Basic dXNlcjpwYXNz"), (b"x-api-key", OPS.encode())],
    "among others": [(b"host", b"localhost"), (b"x-api-key", OPS.encode()), (b"accept", b"*/*")],
}


@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_key_is_taken_from_either_header(headers):
    keys = ApiKeys.of(f"web:{WEB},ops:{OPS}", None)
    assert keys is not None
    assert keys.name_of(iter(headers)) == "ops"


REFUSED = {
    "nothing": ([(b"host", b"localhost")], "no key"),
    "an empty key": ([(b"x-api-key", b" ")], "no key"),
    "bearer without a key": ([(b"authorization", b"Bearer ")], "no key"),
    "an empty authorization": ([(b"authorization", b"")], "no key"),
    "another scheme": ([(b"authorization", b"Basic dXNlcjpwYXNz")], "an Authorization of another scheme"),
    "no scheme": ([(b"authorization", OPS.encode())], "an Authorization of another scheme"),
    "an unknown key": ([(b"x-api-key", UNKNOWN.encode())], "a key that is not known"),
    "a name and its key": ([(b"x-api-key", f"ops:{OPS}".encode())], "a key that is not known"),
    "the beginning of a key": ([(b"x-api-key", OPS[:-1].encode())], "a key that is not known"),
    "bytes that are no text": ([(b"x-api-key", b"\xff\x00" * 9)], "a key that is not known"),
    "x-api-key twice": (2 * with_key(OPS), "one of them twice"),
    "authorization twice": (2 * [(b"authorization", b"Bearer " + OPS.encode())], "one of them twice"),
    "two keys": (
        [(b"authorization", b"Bearer " + OPS.encode()), (b"x-api-key", WEB.encode())],
        "two different keys",
    ),
}


@pytest.mark.parametrize(("headers", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_other_headers_are_refused_with_what_came_and_no_key_shown(headers, said):
    assert refusal(ApiKeys.of(f"ops:{OPS},web:{WEB}", None), headers) == said


def test_a_key_is_compared_with_all_that_are_known(monkeypatch):
    keys = ApiKeys.of(f"ops:{OPS},ops:{OPS_OLD},web:{WEB}", None)
    compared = []
    compare = hmac.compare_digest

    def watched(came, known):
        compared.append(known)
        return compare(came, known)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    for key in (OPS, WEB, UNKNOWN):
        compared.clear()
        who(keys, key)
        assert len(set(compared)) == 3


def test_no_key_is_kept_in_memory_as_it_is(file):
    for keys in (ApiKeys.of(f"ops:{OPS}", None), ApiKeys.of(None, file)):
        assert OPS not in repr(vars(keys))


def test_a_key_is_replaced_without_a_restart(file, clock, log):
    keys = ApiKeys.of(None, file, clock)
    write(file, f"ops:{OPS}\nops:{OPS_OLD}\nweb:{WEB}\n")
    clock.now += 1.5
    assert [who(keys, key) for key in (OPS, OPS_OLD, WEB)] == ["ops", "ops", "web"]
    assert log() == [("INFO", f"{file} read again: 3 key(s) of ops, web")]
    write(file, f"web:{WEB}\n")
    clock.now += 1.5
    assert [who(keys, key) for key in (OPS, OPS_OLD, WEB)] == [None, None, "web"]
    assert len(log()) == 2


def test_the_file_is_looked_at_once_a_second(file, clock):
    keys = ApiKeys.of(None, file, clock)
    write(file, f"web:{WEB}\n")
    clock.now += 0.9
    assert who(keys, WEB) is None
    clock.now += 0.2
    assert who(keys, WEB) == "web"
    write(file, f"ops:{OPS}\n")
    clock.now += 0.9
    assert who(keys, OPS) is None
    clock.now += 0.2
    assert who(keys, OPS) == "ops"


def test_a_file_that_has_not_changed_is_not_read_again(file, clock, log, monkeypatch):
    keys = ApiKeys.of(None, file, clock)
    monkeypatch.setattr("utils.edge.keys._read", lambda file: pytest.fail("read again"))
    for _ in range(3):
        clock.now += 2
        assert who(keys, OPS) == "ops"
    assert log() == []


def write_as_of_1970(path, text):
    path.write_text(text)
    os.utime(path, (0, 0))


CHANGES = {
    "content of another size": lambda file: file.write_text(f"# now\nweb:{WEB}\n"),
    "another time": lambda file: write_as_of_1970(file, f"web:{WEB}\n"),
    "another file": lambda file: write(file, f"web:{WEB}\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_seen(file, clock, change):
    keys = ApiKeys.of(None, file, clock)
    change(file)
    clock.now += 2
    assert who(keys, WEB) == "web"


DAMAGES = {
    "missing": lambda file: file.unlink(),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "empty": lambda file: write(file, ""),
    "malformed": lambda file: write(file, f"web:{WEB}\nnonsense\n"),
    "no text": lambda file: write(file, b"\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_the_keys_stay_where_the_file_cannot_be_used_and_that_is_told_once(file, clock, log, damage):
    keys = ApiKeys.of(None, file, clock)
    damage(file)
    for _ in range(3):
        clock.now += 2
        assert who(keys, OPS) == "ops"
        assert who(keys, WEB) is None
    ((level, text),) = log()
    assert level == "ERROR"
    assert text.startswith(f"MOBILE_SAM_API_KEYS_FILE {file}")
    assert text.endswith("; the keys from before stay")


def test_each_state_that_cannot_be_used_is_told_and_a_good_file_is_used_again(file, clock, log):
    keys = ApiKeys.of(None, file, clock)
    for text, level in (("bad", "ERROR"), ("as bad", "ERROR"), (f"web:{WEB}\n", "INFO"), ("bad", "ERROR")):
        write(file, text)
        for _ in range(2):
            clock.now += 2
            who(keys, WEB)
        assert log()[-1][0] == level
    assert len(log()) == 4
    assert who(keys, WEB) == "web"


def test_a_file_that_goes_away_comes_back_and_goes_away_is_told_twice(file, clock, log, tmp_path):
    keys = ApiKeys.of(None, file, clock)
    for _ in range(2):
        file.rename(tmp_path / "elsewhere")
        clock.now += 2
        assert who(keys, OPS) == "ops"
        (tmp_path / "elsewhere").rename(file)
        clock.now += 2
        assert who(keys, OPS) == "ops"
    assert [level for level, _ in log()] == ["ERROR", "ERROR"]


def test_a_file_that_could_not_be_read_is_used_once_it_can(file, clock, log, monkeypatch):
    keys = ApiKeys.of(None, file, clock)
    write(file, f"web:{WEB}\n")
    with monkeypatch.context() as patched:  # permissions, which root has, and which are no part of the file's state
        patched.setattr("utils.edge.keys._read", Mock(side_effect=KeysError("Permission denied")))
        for _ in range(2):
            clock.now += 2
            assert who(keys, WEB) is None
    clock.now += 2
    assert who(keys, WEB) == "web"
    assert [level for level, _ in log()] == ["ERROR", "INFO"]
