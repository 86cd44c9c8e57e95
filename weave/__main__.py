"""`python -m weave`."""

import sys

from weave.cli import main

if __name__ == "__main__":
    sys.exit(main())
