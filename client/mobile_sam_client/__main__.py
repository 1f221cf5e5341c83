"""Entry point of `python -m mobile_sam_client`, the same as `mobile-sam`."""

from mobile_sam_client._commands import main

if __name__ == "__main__":
    main()
