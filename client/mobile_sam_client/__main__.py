"""`python -m mobile_sam_client` is the command line `mobile-sam`."""

from mobile_sam_client._commands import main

if __name__ == "__main__":
    main()
