"""YAML whose scalars are all text as written: a reader that resolves no types."""

import re
from typing import Any

import yaml

from mobile_sam_client._datasets.values import DatasetError, shown

MAX_DEPTH = 20
MAX_EVENTS = 2**16
"""Entries, starts and ends of lists and maps, in a file. There are two for each class of a map: the
largest list of classes in use, ImageNet-21k's, has 21,841. PyYAML's parser in Python reads about
10,000 a second."""
LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""The loader in C where PyYAML has it: ten times as fast."""
TAG_DIRECTIVE = re.compile(r"^\ufeff?%TAG\b", re.MULTILINE)
"""Shorthand of tags. LibYAML compares each with all before it: a megabyte of them takes seconds."""
TEXT_TAGS = {None, "!", "tag:yaml.org,2002:str"}


def load_text(text: str, loader: Any = LOADER) -> Any:
    """Return the only document of a YAML file, as text, lists and maps; None if there is none.

    What repeats other parts of the file, and so could make a small file huge, is refused.

    Raises:
        DatasetError: the file is no YAML, or has aliases, merges, tags, or a key twice.
    """
    directive = TAG_DIRECTIVE.search(text)
    if directive:
        line = text.count("\n", 0, directive.start()) + 1
        raise DatasetError(f"line {line}: the directive %TAG is not read")
    try:
        return _Reader(text, loader).document()
    except yaml.YAMLError as error:
        raise DatasetError(f"not valid YAML: {' '.join(str(error).split())}") from None


class _Reader:
    def __init__(self, text: str, loader: Any) -> None:
        self._events = yaml.parse(text, Loader=loader)
        self._count = 0
        self._line = 0

    def document(self) -> Any:
        documents: list[Any] = []
        event = self._next()
        while not isinstance(event, yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                if documents:
                    raise DatasetError(f"line {self._line}: expected one document")
                documents.append(self._value(self._next(), 0))
            event = self._next()
        return documents[0] if documents else None

    def _next(self) -> Any:
        """Return the next event, which is none of those that are refused."""
        event = next(self._events)
        self._count += 1
        if event.start_mark:
            self._line = event.start_mark.line + 1
        if self._count > MAX_EVENTS:
            raise DatasetError(f"line {self._line}: the file has too many entries")
        if getattr(event, "anchor", None):  # aliases have the anchor that they repeat
            raise DatasetError(f"line {self._line}: anchors and aliases are not read")
        tag = getattr(event, "tag", None)
        if tag not in TEXT_TAGS:
            raise DatasetError(f"line {self._line}: the tag {shown(tag)} is not read")
        return event

    def _value(self, event: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise DatasetError(f"line {self._line}: lists and maps are too deep")
        if isinstance(event, yaml.ScalarEvent):
            return event.value
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(depth)
        return self._map(depth)

    def _list(self, depth: int) -> list[Any]:
        values = []
        event = self._next()
        while not isinstance(event, yaml.SequenceEndEvent):
            values.append(self._value(event, depth + 1))
            event = self._next()
        return values

    def _map(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        event = self._next()
        while not isinstance(event, yaml.MappingEndEvent):
            line = self._line
            is_quoted = bool(getattr(event, "style", ""))
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                raise DatasetError(f"line {line}: expected a key as text, got {shown(key)}")
            if key == "<<" and not is_quoted:
                raise DatasetError(f"line {line}: merges are not read")
            if key in values:
                raise DatasetError(f"line {line}: {key[:80]} is there twice")
            values[key] = self._value(self._next(), depth + 1)
            event = self._next()
        return values
