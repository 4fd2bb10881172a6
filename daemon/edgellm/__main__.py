"""``python -m edgellm`` is the ``edgellm`` command."""

import sys

from edgellm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
