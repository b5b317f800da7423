"""Makes ``python -m torchstone`` the same as the command ``torchstone``."""

import sys

from torchstone.cli import main

if __name__ == "__main__":
    sys.exit(main())
