"""API keys from a variable or a file, and their lookup in requests."""

import base64

import pytest

from tests.unit.utils.edge.fakes import Clock
from utils.edge.keys import ADMIN_KEYS, API_KEYS, ApiKeys
from utils.errors import Unauthorized
from utils.settings import SettingsError

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
    return ApiKeys.from_setting(None, file, clock)


def write(path, text):
    """Replace a file atomically, as a mounted secret does."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh.chmod(0o600)
    fresh.replace(path)


def keys_of(text) -> ApiKeys:
    keys = ApiKeys.from_setting(text, None)
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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(f"ops:{OPS}, web:{WEB},", ["ops", None, "web", None], id="two-names"),
        pytest.param(
            f"ops:{OPS_OLD},ops:{OPS},ops:{OPS}",
            ["ops", "ops", None, None],
            id="one-name-with-two-keys",
        ),
    ],
)
def test_keys_from_the_variable_have_their_names(text, names):
    assert names_of(ApiKeys.from_setting(text, None)) == names
    assert ApiKeys.from_setting(None, None) is None


def test_keys_from_a_file_have_their_names(file):
    write(file, f"\ufeff# keys of März\r\n\r\nops:{OPS}\r\n  # another\n\tweb:{WEB}  \n")
    assert names_of(ApiKeys.from_setting(None, file)) == ["ops", None, "web", None]


INVALID_ENTRIES = {
    "no-name-and-colon": (UNKNOWN, "expected NAME:KEY, got no colon"),
    "empty-name": (f":{UNKNOWN}", "expected a NAME of 1 to 64"),
    "long-name": (f"{65 * 'a'}:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "non-ascii-name": (f"öps:{UNKNOWN}", "expected a NAME of 1 to 64"),
    "short-key": (f"web:{UNKNOWN[:15]}", "expected a KEY of at least 16 characters, got 15"),
    "comment-after-key": (
        f"web:{UNKNOWN} # new",
        "expected nothing after the KEY, or a rate such as '60/minute'",
    ),
    "key-with-a-space": (
        f"web:{UNKNOWN} {UNKNOWN}",
        "expected nothing after the KEY, or a rate such as '60/minute'",
    ),
    "rate-of-nothing": (
        f"web:{UNKNOWN} 0/minute",
        "expected nothing after the KEY, or a rate such as '60/minute'",
    ),
    "second-rate": (
        f"ops:{OPS_OLD} 1/day;ops",
        "expected nothing after the KEY, or a rate such as '60/minute'",
    ),
    "non-ascii-key": (f"web:{UNKNOWN}é", "expected a KEY of printable ASCII"),
    "control-character": (f"web:{UNKNOWN}\x7f", "expected a KEY of printable ASCII"),
    "key-of-another-name": (
        f"web:{OPS}",
        "expected a KEY that no other name has, got the key of ops",
    ),
}


@pytest.mark.parametrize(("entry", "message"), INVALID_ENTRIES.values(), ids=INVALID_ENTRIES.keys())
def test_error_about_an_entry_names_its_position_and_shows_no_key(file, entry, message):
    write(file, f"ops:{OPS}\n# comment\n{entry}\n")
    with pytest.raises(SettingsError) as of_file:
        ApiKeys.from_setting(None, file)
    with pytest.raises(SettingsError) as of_variable:
        ApiKeys.from_setting(f"ops:{OPS},{entry}", None)
    assert str(of_file.value).startswith(f"{API_KEYS}_FILE {file}, line 3: {message}")
    assert str(of_variable.value).startswith(f"{API_KEYS}, entry 2: {message}")
    for error in (of_file, of_variable):
        assert not any(key[:10] in str(error.value) for key in (OPS, UNKNOWN))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("\n\n", ": expected at least one NAME:KEY, got none", id="blank-lines"),
        pytest.param(f"# ops:{OPS}", ": expected at least one NAME:KEY, got none", id="comment"),
        pytest.param(
            b"ops:\xff" + OPS.encode(), ": expected UTF-8 text, got other bytes", id="not-utf-8"
        ),
        pytest.param(
            f"ops:{OPS},web:{WEB}",
            ", line 1: expected a KEY of printable ASCII without",
            id="comma",
        ),
    ],
)
def test_unusable_file_is_refused(file, text, message):
    write(file, text)
    with pytest.raises(SettingsError) as caught:
        ApiKeys.from_setting(None, file)
    assert str(caught.value).startswith(f"MOBILE_SAM_API_KEYS_FILE {file}{message}")


def rates_of(keys: ApiKeys | None, name: str) -> list[str]:
    assert keys
    return [str(rate) for rate in keys.rates_of(name) or ()]


@pytest.mark.parametrize("space", [" ", "\t", "   "])
def test_key_can_have_a_rate_of_its_own(file, space):
    write(file, f"ops:{OPS}{space}10/second; 2000/hour  \nops:{OPS_OLD}\nweb:{WEB}\n")
    for keys in (
        keys_of(f"ops:{OPS}{space}10/second; 2000/hour ,web:{WEB},ops:{OPS_OLD}"),
        ApiKeys.from_setting(None, file),
    ):
        assert names_of(keys) == ["ops", "ops", "web", None]
        assert rates_of(keys, "ops") == ["10 per 1 second", "2000 per 1 hour"]
        assert rates_of(keys, "web") == []


def test_keys_of_one_name_have_one_rate(file):
    write(file, f"ops:{OPS} 2/minute; 1/second\nops:{OPS_OLD} 1/second; 2/minute\n")
    assert rates_of(ApiKeys.from_setting(None, file), "ops") == ["1 per 1 second", "2 per 1 minute"]
    with pytest.raises(
        SettingsError, match=r"entry 2: expected one rate for all keys of ops, got two$"
    ):
        keys_of(f"ops:{OPS} 1/second,ops:{OPS_OLD} 2/second")


def test_changed_rate_is_reloaded_within_a_second(file, keys, clock):
    assert rates_of(keys, "ops") == []
    write(file, f"ops:{OPS} 3/minute\n")
    clock.now += 1.1
    assert names_of(keys)[0] == "ops"
    assert rates_of(keys, "ops") == ["3 per 1 minute"]


def test_operators_have_no_rate():
    expected = f"^{ADMIN_KEYS}: expected NAME:KEY, got a rate limit, which operators do not have$"
    with pytest.raises(SettingsError, match=expected):
        ApiKeys.from_setting(f"ops:{OPS} 3/minute", None, variable=ADMIN_KEYS)


def test_variable_and_file_together_are_refused(file):
    with pytest.raises(
        SettingsError, match=f"^expected one of {ADMIN_KEYS} and {ADMIN_KEYS}_FILE, got both$"
    ):
        ApiKeys.from_setting("", file, variable=ADMIN_KEYS)


@pytest.mark.parametrize(("mode", "warnings"), [(0o660, 0), (0o604, 1), (0o662, 1)])
def test_file_that_others_can_access_is_warned_about(file, log, mode, warnings):
    file.chmod(mode)
    assert names_of(ApiKeys.from_setting(None, file))[0] == "ops"
    assert [level for level, _ in log()] == warnings * ["WARNING"]
    assert all(f"got mode {mode:03o}" in text for _, text in log())


def bearer(key: str, scheme: str = "Bearer") -> tuple[bytes, bytes]:
    return b"authorization", f"{scheme} {key}".encode()


def basic(credentials: str) -> tuple[bytes, bytes]:
    return bearer(base64.b64encode(credentials.encode()).decode(), "basic")


X_API_KEY = (b"x-api-key", OPS.encode())
ANY_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != ",")
ACCEPTED = {
    "bearer-in-mixed-case": [bearer(f"  {OPS}", "bEARER")],
    "x-api-key-among-others": [(b"host", b"localhost"), X_API_KEY, (b"accept", b"*/*")],
    "any-printable-character": [(b"x-api-key", ANY_PRINTABLE.encode())],
    "both-with-the-same-key": [bearer(OPS), X_API_KEY],
    "x-api-key-and-another-scheme": [basic("user:pass"), X_API_KEY],
    "token": [(b"token", OPS.encode())],
    "password-of-a-user": [basic(f"anyone:{OPS}")],
    "user-without-password": [basic(f"{OPS}:")],
}


@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_key_is_read_from_either_header(headers):
    assert keys_of(f"web:{WEB},ops:{OPS},ops:{ANY_PRINTABLE}").name_of(iter(headers)) == "ops"


REFUSED = {
    "no-headers": ([(b"host", b"localhost")], "no key"),
    "empty-key": ([(b"x-api-key", b" ")], "no key"),
    "bearer-without-key": ([bearer("")], "no key"),
    "empty-authorization": ([(b"authorization", b"")], "no key"),
    "another-scheme": (
        [bearer("dXNlcjpwYXNz", "Digest")],
        "an Authorization header of another scheme",
    ),
    "no-scheme": ([(b"authorization", OPS.encode())], "an Authorization header of another scheme"),
    "unknown-password": ([basic("user:pass")], "an unknown key"),
    "empty-password": ([basic(":")], "an unknown key"),
    "basic-without-base64": (
        [bearer("user:pass", "Basic")],
        "Basic credentials that are not base64",
    ),
    "prefix-of-a-key": ([(b"x-api-key", OPS[:-1].encode())], "an unknown key"),
    "not-text": ([(b"x-api-key", b"\xff\x00" * 9)], "an unknown key"),
    "x-api-key-twice": (2 * [X_API_KEY], "one of these headers twice"),
    "two-keys": ([bearer(OPS), (b"x-api-key", WEB.encode())], "two different keys"),
}


@pytest.mark.parametrize(("headers", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_error_about_headers_says_what_is_wrong_and_shows_no_key(headers, message):
    with pytest.raises(Unauthorized) as caught:
        keys_of(f"ops:{OPS},web:{WEB}").name_of(headers)
    expected = "expected a header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
    assert caught.value.detail == f"{expected}, got {message}"


def test_keys_are_not_kept_in_plain_text(keys):
    for kept in (ApiKeys.from_setting(f"ops:{OPS}", None), keys):
        assert OPS not in repr(vars(kept))


def test_changed_file_is_reloaded_within_a_second(file, keys, clock, log):
    write(file, f"ops:{OPS}\nops:{OPS_OLD}\nweb:{WEB}\n")
    clock.now += 0.9
    assert names_of(keys) == ["ops", None, None, None]
    clock.now += 0.2
    assert names_of(keys) == ["ops", "ops", "web", None]
    assert log() == [("INFO", f"reloaded {file}: 3 key(s) of ops, web")]
    write(file, f"web:{WEB}\n")
    clock.now += 0.9
    assert names_of(keys)[0] == "ops"
    clock.now += 0.2
    assert names_of(keys) == [None, None, "web", None]
    assert len(log()) == 2


DAMAGES = {
    "missing": lambda file: file.unlink(),
    "folder": lambda file: (file.unlink(), file.mkdir()),
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


def test_file_that_goes_missing_twice_is_logged_twice(file, keys, clock, log, tmp_path):
    for _ in range(2):
        for source, target in ((file, tmp_path / "elsewhere"), (tmp_path / "elsewhere", file)):
            source.rename(target)
            clock.now += 2
            assert names_of(keys)[0] == "ops"
    assert [level for level, _ in log()] == ["ERROR", "INFO"] * 2
