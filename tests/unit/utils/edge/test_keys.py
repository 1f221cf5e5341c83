"""API keys from a variable or a file, and their lookup in requests."""

import base64
import hmac
import os
from unittest.mock import Mock

import pytest

from tests.unit.utils.edge.fakes import Clock
from utils.api.errors import Unauthorized
from utils.edge.keys import ADMIN_KEYS, API_KEYS, ApiKeys, KeysError

OPS, OPS_OLD, WEB = "ops-key-0123456789", "ops-key-9876543210", "web-key-0123456789"
UNKNOWN = "unknown-0123456789"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "keys"
    write(path, f"ops:{OPS}\n")
    return path


@pytest.fixture
def keys(file, clock):
    """Keys that were read from the file."""
    return ApiKeys.of(None, file, clock)


def write(path, text):
    """Replace a file atomically, as a mounted secret does."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh.chmod(0o600)
    fresh.replace(path)


def keys_of(text) -> ApiKeys:
    keys = ApiKeys.of(text, None)
    assert keys is not None
    return keys


def names_of(keys):
    """Return the names of the keys OPS, OPS_OLD, WEB and UNKNOWN, None for an unknown key."""
    names = []
    for key in (OPS, OPS_OLD, WEB, UNKNOWN):
        try:
            names.append(keys.name_of([(b"x-api-key", key.encode())]))
        except Unauthorized:
            names.append(None)
    return names


def test_no_keys_without_variable_and_file():
    assert ApiKeys.of(None, None) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(f"ops:{OPS}, web:{WEB},", ["ops", None, "web", None], id="two-names"),
        pytest.param(f"ops:{OPS_OLD},ops:{OPS},ops:{OPS}", ["ops", "ops", None, None], id="one-name-with-two-keys"),
    ],
)
def test_keys_from_the_variable_have_their_names(text, names):
    assert names_of(ApiKeys.of(text, None)) == names


def test_keys_from_a_file_have_their_names(file):
    write(file, f"\ufeff# keys of März\r\n\r\nops:{OPS}\r\n  # another\n\tweb:{WEB}  \n")
    assert names_of(ApiKeys.of(None, file)) == ["ops", None, "web", None]


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


@pytest.mark.parametrize("variable", [API_KEYS, ADMIN_KEYS])
@pytest.mark.parametrize(("entry", "message"), INVALID_ENTRIES.values(), ids=INVALID_ENTRIES.keys())
def test_error_about_an_entry_names_its_position_and_shows_no_key(file, variable, entry, message):
    write(file, f"ops:{OPS}\n# comment\n{entry}\n")
    with pytest.raises(KeysError) as of_file:
        ApiKeys.of(None, file, variable=variable)
    with pytest.raises(KeysError) as of_variable:
        ApiKeys.of(f"ops:{OPS},{entry}", None, variable=variable)
    assert str(of_file.value).startswith(f"{variable}_FILE {file}, line 3: {message}")
    assert str(of_variable.value).startswith(f"{variable}, entry 2: {message}")
    for error in (of_file, of_variable):
        assert not any(key[:10] in str(error.value) for key in (OPS, UNKNOWN))


@pytest.mark.parametrize("text", ["", " ", ",", " ,\n, "])
def test_variable_without_a_key_is_refused(text):
    with pytest.raises(KeysError, match=r"^MOBILE_SAM_API_KEYS: expected at least one NAME:KEY, got none$"):
        ApiKeys.of(text, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": expected at least one NAME:KEY, got none"),
        ("\n\n", ": expected at least one NAME:KEY, got none"),
        (f"# ops:{OPS}", ": expected at least one NAME:KEY, got none"),
        (b"ops:\xff" + OPS.encode(), ": expected UTF-8 text, got other bytes"),
        (
            f"ops:{OPS},web:{WEB}",
            ", line 1: expected a KEY of printable ASCII without space or comma, got other characters",
        ),
    ],
    ids=["empty", "blank-lines", "comment", "not-utf-8", "comma"],
)
def test_unusable_file_is_refused(file, text, message):
    write(file, text)
    with pytest.raises(KeysError) as caught:
        ApiKeys.of(None, file)
    assert str(caught.value) == f"MOBILE_SAM_API_KEYS_FILE {file}{message}"


@pytest.mark.parametrize(("name", "reason"), [("nowhere", "No such file or directory"), ("", "Is a directory")])
def test_unreadable_file_is_refused(tmp_path, name, reason):
    with pytest.raises(KeysError, match=rf"^MOBILE_SAM_API_KEYS_FILE .*: expected a readable file, got '{reason}'$"):
        ApiKeys.of(None, tmp_path / name)


@pytest.mark.parametrize("variable", [API_KEYS, ADMIN_KEYS])
def test_variable_and_file_together_are_refused(file, variable):
    with pytest.raises(KeysError, match=f"^expected one of {variable} and {variable}_FILE, got both$"):
        ApiKeys.of("", file, variable=variable)


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o660, 0), (0o604, 1), (0o662, 1), (0o644, 1)])
def test_file_that_others_can_access_is_warned_about(file, log, mode, warnings):
    file.chmod(mode)
    assert names_of(ApiKeys.of(None, file))[0] == "ops"
    assert [level for level, _ in log()] == warnings * ["WARNING"]
    assert all(f"got mode {mode:03o}" in text for _, text in log())


ANY_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != ",")
ACCEPTED = {
    "bearer": [(b"authorization", b"Bearer " + OPS.encode())],
    "bearer-in-mixed-case": [(b"authorization", b"bEARER   " + OPS.encode())],
    "x-api-key": [(b"x-api-key", OPS.encode())],
    "any-printable-character": [(b"x-api-key", ANY_PRINTABLE.encode())],
    "both-with-the-same-key": [(b"authorization", b"Bearer " + OPS.encode()), (b"x-api-key", OPS.encode())],
    "x-api-key-and-another-scheme": [(b"authorization", b"Basic dXNlcjpwYXNz"), (b"x-api-key", OPS.encode())],
    "token": [(b"token", OPS.encode())],
    "password-of-a-user": [(b"authorization", b"Basic " + base64.b64encode(f"anyone:{OPS}".encode()))],
    "user-without-password": [(b"authorization", b"basic " + base64.b64encode(f"{OPS}:".encode()))],
    "among-other-headers": [(b"host", b"localhost"), (b"x-api-key", OPS.encode()), (b"accept", b"*/*")],
}


@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_key_is_read_from_either_header(headers):
    assert keys_of(f"web:{WEB},ops:{OPS},ops:{ANY_PRINTABLE}").name_of(iter(headers)) == "ops"


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
    "x-api-key-twice": (2 * [(b"x-api-key", OPS.encode())], "one of these headers twice"),
    "authorization-twice": (2 * [(b"authorization", b"Bearer " + OPS.encode())], "one of these headers twice"),
    "two-keys": (
        [(b"authorization", b"Bearer " + OPS.encode()), (b"x-api-key", WEB.encode())],
        "two different keys",
    ),
}


@pytest.mark.parametrize(("headers", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_error_about_headers_says_what_is_wrong_and_shows_no_key(headers, message):
    with pytest.raises(Unauthorized) as caught:
        keys_of(f"ops:{OPS},web:{WEB}").name_of(headers)
    expected = "expected a header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
    assert caught.value.detail == f"{expected}, got {message}"


def test_key_is_compared_with_all_known_keys(monkeypatch):
    keys = ApiKeys.of(f"ops:{OPS},ops:{OPS_OLD},web:{WEB}", None)
    compare = Mock(side_effect=hmac.compare_digest)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert names_of(keys) == ["ops", "ops", "web", None]
    compared = [known for (_, known), _ in compare.call_args_list]
    assert [len(set(compared[start : start + 3])) for start in (0, 3, 6, 9)] == [3, 3, 3, 3]
    assert len(compared) == 12


def test_keys_are_not_kept_in_plain_text(keys):
    for kept in (ApiKeys.of(f"ops:{OPS}", None), keys):
        assert OPS not in repr(vars(kept))


def test_key_in_both_lists_is_detected():
    admin_keys = keys_of(f"ops:{OPS}")
    assert admin_keys.overlaps(keys_of(f"web:{WEB},other:{OPS}"))
    assert not admin_keys.overlaps(keys_of(f"ops:{WEB}"))


def test_changed_file_is_reloaded(file, keys, clock, log):
    write(file, f"ops:{OPS}\nops:{OPS_OLD}\nweb:{WEB}\n")
    clock.now += 1.5
    assert names_of(keys) == ["ops", "ops", "web", None]
    assert log() == [("INFO", f"reloaded {file}: 3 key(s) of ops, web")]
    write(file, f"web:{WEB}\n")
    clock.now += 1.5
    assert names_of(keys) == [None, None, "web", None]
    assert len(log()) == 2


def test_file_is_checked_once_a_second(file, keys, clock):
    for text, before, after in (("web:" + WEB, "ops", None), ("ops:" + OPS, None, "ops")):
        write(file, text)
        clock.now += 0.9
        assert names_of(keys)[0] == before
        clock.now += 0.2
        assert names_of(keys)[0] == after


def test_unchanged_file_is_not_reloaded(keys, clock, log, monkeypatch):
    monkeypatch.setattr("utils.edge.keys._read", lambda *_: pytest.fail("reloaded"))
    for _ in range(3):
        clock.now += 2
        assert names_of(keys)[0] == "ops"
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
def test_change_of_size_time_or_inode_is_noticed(file, keys, clock, change):
    change(file)
    clock.now += 2
    assert names_of(keys)[2] == "web"


DAMAGES = {
    "missing": lambda file: file.unlink(),
    "folder": lambda file: (file.unlink(), file.mkdir()),
    "empty": lambda file: write(file, ""),
    "malformed": lambda file: write(file, f"web:{WEB}\nnonsense\n"),
    "not-text": lambda file: write(file, b"\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_previous_keys_stay_if_the_file_becomes_invalid(file, keys, clock, log, damage):
    damage(file)
    for _ in range(3):
        clock.now += 2
        assert names_of(keys) == ["ops", None, None, None]
    ((level, text),) = log()
    assert level == "ERROR"
    assert text.startswith(f"MOBILE_SAM_API_KEYS_FILE {file}")
    assert text.endswith("; keeping the previous keys")


def test_each_invalid_state_is_logged_once_and_a_valid_file_is_used_again(file, keys, clock, log):
    for text, level in (("bad", "ERROR"), ("as bad", "ERROR"), (f"web:{WEB}\n", "INFO"), ("bad", "ERROR")):
        write(file, text)
        for _ in range(2):
            clock.now += 2
            names_of(keys)
        assert log()[-1][0] == level
    assert len(log()) == 4
    assert names_of(keys)[2] == "web"


def test_file_that_goes_missing_twice_is_logged_twice(file, keys, clock, log, tmp_path):
    for _ in range(2):
        for source, target in ((file, tmp_path / "elsewhere"), (tmp_path / "elsewhere", file)):
            source.rename(target)
            clock.now += 2
            assert names_of(keys)[0] == "ops"
    assert [level for level, _ in log()] == ["ERROR", "ERROR"]


def test_unreadable_file_is_used_once_it_is_readable(file, keys, clock, log, monkeypatch):
    write(file, f"web:{WEB}\n")
    with monkeypatch.context() as patched:  # stands for permissions, which do not bind root
        patched.setattr("utils.edge.keys._read", Mock(side_effect=KeysError("Permission denied")))
        for _ in range(2):
            clock.now += 2
            assert names_of(keys)[2] is None
    clock.now += 2
    assert names_of(keys)[2] == "web"
    assert [level for level, _ in log()] == ["ERROR", "INFO"]
