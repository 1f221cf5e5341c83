"""The Makefile's message about variables that it does not have: `python3 -m tools.make_variables
prot -- HOST PORT`.

Standard library only, for Python 3.9 or newer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches


def message(unknown: Sequence[str], known: Sequence[str]) -> str:
    """Return one line about unknown variables: the closest known ones, or else all of them."""
    parts = []
    for name in unknown:
        similar = get_close_matches(name.upper(), known, 1)
        if similar:
            parts.append(f"{name}: unknown variable; did you mean {similar[0]}")
        else:
            variables = ", ".join(sorted(known))
            parts.append(
                f"{name}: expected one of {variables}; environment variables go before `make`"
            )
    return "; ".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Print the message: unknown names, `--`, known names."""
    end = list(arguments).index("--")
    print(message(arguments[:end], arguments[end + 1 :]))


if __name__ == "__main__":
    main(sys.argv[1:])
