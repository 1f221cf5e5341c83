"""Check before Triton starts that the configured language model can be loaded."""

from __future__ import annotations

import os
import sys

from text_generation_settings import Settings, SettingsError


def main() -> int:
    """Run the check and return the exit status."""
    try:
        settings = Settings.of(os.environ)
        print(f"Checking the language model {settings.model}", flush=True)
        from text_generation_language import find  # noqa: PLC0415  (takes seconds)

        find(settings)
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed; install it with `make env-text`", file=sys.stderr)
        return 1
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
