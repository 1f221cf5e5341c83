"""Bodies and heads that take the most time to parse, or to refuse, for each loop over what a
caller sends.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from harness.load import JSON, Request

MAX_BODY_BYTES = 32 * 2**20
MAX_HEAD_VALUE = 60_000
"""Characters of one header or a query, of 64 KiB for the whole head."""
BOUNDARY = "b"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
PNG = {"Content-Type": "image/png"}
PART = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
LAST = b"\r\n--b--\r\n"


def filled(start: bytes, each: bytes, end: bytes = b"", size: int = MAX_BODY_BYTES) -> bytes:
    """Return a body of this size at most, with as much in the middle as fits."""
    return start + each * ((size - len(start) - len(end)) // len(each)) + end


def hostile_bodies(size: int = MAX_BODY_BYTES) -> Iterator[tuple[str, Request]]:
    """Yield requests of this size with their names; one at a time, as each takes memory."""
    for name, parts in {
        "tiny parts": (b"", PART + b"\r\n", LAST),
        "lines like a boundary": (PART, b"\r\n--bX", LAST),
        "spaces after a boundary": (PART + b"\r\n--b", b" ", b"\r\n" + PART + LAST),
        "half boundaries": (PART, b"\r\n--", LAST),
        "one image": (PART, b"\xff", LAST),
        "an endless header": (PART[:-2] + b"X: ", b"x", LAST),
        "many headers": (PART[:-2], b"X: y\r\n", LAST),
        "quoted-printable": (
            PART[:-2] + b"Content-Transfer-Encoding: quoted-printable\r\n\r\n",
            b"=41",
            LAST,
        ),
    }.items():
        yield f"form: {name}", Request("/embed", filled(*parts, size), FORM)
    for name, (start, each, end) in {
        "an image": (b'{"input_image": "', b"A", b'"}'),
        "an image as PHP writes it": (b'{"input_image": "', b"A" * 60 + rb"\/", b'"}'),
        "an image of escaped slashes": (b'{"input_image": "', rb"\/", b'"}'),
        "an image in lines": (b'{"input_image": "', b"A" * 76 + rb"\n", b'"}'),
        "an image in lines that is no base64 at its end": (
            b'{"input_image": "',
            b"A" * 76 + rb"\n",
            b'*"}',
        ),
        "images": (b'{"images": [', b'"' + b"A" * 2**17 + b'",', b'"AAAA"]}'),
        "escaped letters": (b'{"input_image": "', rb"\u0041", b'"}'),
        "other letters": (b'{"input_image": "', "\u00e9".encode(), b'"}'),
        "a name": (b'{"', "\U0001f600".encode(), b'": 1}'),
        "spaces": (b"{", b" ", b"}"),
        "integers": (b'{"labels": [', b"1" * 4000 + b",", b"1]}"),
        "commas": (b'{"labels": [', b"1,", b"1]}"),
        "brackets": (b"", b"[", b""),
        "texts": (b'{"image_ids": [', b'"' + b"a" * 1600 + b'",', b'""]}'),
    }.items():
        yield f"JSON: {name}", Request("/embed", filled(start, each, end, size), JSON)
    errors = {
        "unknown fields": b"{" + b",".join(b'"k%d": 1' % n for n in range(19_000)) + b"}",
        "bad labels": b'{"prompts": ['
        + b",".join([b'{"labels": [' + b",".join([b"9"] * 75) + b"]}"] * 256)
        + b"]}",
    }
    for name, body in errors.items():
        yield f"errors: {name}", Request("/mobile_sam", body, JSON)
    numbers = (
        b'{"label_config": "<View/>", "tasks": [{"annotations": [{"result": [{"value": {"points": ['
    )
    yield (
        "Label Studio: numbers",
        Request("/label-studio/predict", filled(numbers, b"[1,2],", b"[1,2]]}}]}]}]}", size), JSON),
    )
    small = b'{"image_id": "x", "pos_coords": [[1, 2]]}'
    for name, headers in _heads():
        yield f"head: {name}", Request("/mobile_sam", small, {**JSON, **headers})
    for name, text in {
        "names": "a&",
        "points": "x=1&y=1&",
        "commas": "labels=" + "," * MAX_HEAD_VALUE,
    }.items():
        query = text * (MAX_HEAD_VALUE // len(text) or 1)
        yield f"query: {name}", Request(f"/mobile_sam?{query}", b"\xff\xd8", PNG)


def _heads() -> Iterator[tuple[str, Mapping[str, str]]]:
    for each in (",", "a,", "a;q=1,"):
        yield (
            f"Accept of {each!r}",
            MappingProxyType({"Accept": each * (MAX_HEAD_VALUE // len(each))}),
        )
    for each in (";", ";a", ';"'):
        content_type = "multipart/form-data" + each * (MAX_HEAD_VALUE // len(each))
        yield f"Content-Type of {each!r}", MappingProxyType({"Content-Type": content_type})
    yield "Basic credentials", MappingProxyType({"Authorization": "Basic " + "A" * MAX_HEAD_VALUE})
    yield "Host", MappingProxyType({"Host": "a." * (MAX_HEAD_VALUE // 2)})
    yield (
        "Content-Encoding",
        MappingProxyType({"Content-Encoding": "gzip," * (MAX_HEAD_VALUE // 5)}),
    )
