"""Is the language model that the environment asks for there? If not, one line says why, before Triton starts."""

from __future__ import annotations

import os
import sys

from text_generation_settings import Settings, Unusable


def main() -> int:
    """Look for it; the exit status."""
    try:
        settings = Settings.of(os.environ)
        print(f"Looking for the language model {settings.model}", flush=True)
        from text_generation_language import find  # noqa: PLC0415  (takes seconds)

        find(settings)
    except ModuleNotFoundError as error:
        print(f"error: this example needs {error.name}, which is not installed: `make env-text`", file=sys.stderr)
        return 1
    except Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
