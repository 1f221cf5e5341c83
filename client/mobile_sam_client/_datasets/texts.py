"""Text of label files: the encodings that a file tells, and no guesses."""

import codecs
import re

from mobile_sam_client._datasets.values import DatasetError

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
XML_STARTS = (("<?".encode("utf-16-le"), "utf-16-le"), ("<?".encode("utf-16-be"), "utf-16-be"))
"""First bytes of XML in UTF-16 without a byte order mark."""
XML_DECLARATION = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([^"'>]{1,80})["'][^>]*\?>""")
XML_ENCODING = re.compile(
    r"ascii|utf-8|iso8859-\d+|cp\d+|koi8-[ru]|mac-(roman|cyrillic)|tis-620"
    r"|gbk|gb2312|gb18030|big5(hkscs)?|shift_jis|euc_jp|iso2022_jp|euc_kr"
)
"""Python's names of the encodings that XML may declare. Other codecs hide characters, or are
slow."""
WIDER_ENCODINGS = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}
"""Encodings that are declared for their extensions, as browsers read them too."""


def decode(content: bytes) -> str:
    """Return text in UTF-8, or in an encoding that a byte order mark tells.

    Raises:
        DatasetError: the text is in another encoding; the message names the byte.
    """
    marked = _without_mark(content)
    if marked:
        return _decode(*marked)
    tried = "tried UTF-8, and UTF-16 by its byte order mark; save the file as UTF-8"
    try:
        decoded = content.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = f"{error.start} (0x{content[error.start]:02x}) is not UTF-8"
        raise DatasetError(f"byte {wrong}: {tried}") from None
    # Text in UTF-16 is valid UTF-8 where its characters are ASCII.
    if "\0" in decoded:
        raise DatasetError(f"byte {content.index(0)} is NUL: {tried}")
    return decoded


def decode_xml(content: bytes) -> str:
    """Return the text of XML in the encoding that it tells, else in UTF-8.

    Raises:
        DatasetError: the encoding is unknown, or the text is in another one.
    """
    marked = _without_mark(content)
    if marked:
        return _decode(*marked)
    for start, encoding in XML_STARTS:
        if content.startswith(start):
            return _decode(content, encoding)
    declaration = XML_DECLARATION.match(content)
    return _decode(content, _declared(declaration[1]) if declaration else "utf-8")


def _without_mark(content: bytes) -> tuple[bytes, str] | None:
    """Return the bytes after a byte order mark, and the encoding that it tells."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :], encoding
    return None


def _declared(declared: bytes) -> str:
    """Return Python's name of a declared encoding."""
    name = declared.decode("ascii", "replace").strip()
    if re.fullmatch(r"(utf|ucs|iso-10646-ucs)[-_]?(16|2|32|4)([-_]?(le|be))?", name, re.IGNORECASE):
        # The declaration was read byte by byte, so that it is wrong; such files are UTF-8.
        return "utf-8"
    try:
        encoding = codecs.lookup(name).name
    except (LookupError, ValueError):
        encoding = ""
    if not XML_ENCODING.fullmatch(encoding):
        raise DatasetError(f"the encoding {name} is not supported; save the file as UTF-8")
    return WIDER_ENCODINGS.get(encoding, encoding)


def _decode(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} (0x{content[error.start]:02x}) is not {encoding}"
        raise DatasetError(f"{wrong}, which the file says") from None
