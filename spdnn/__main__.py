"""`python -m spdnn` is the `spdnn` command."""

import sys

try:
    from spdnn.cli import main
except KeyboardInterrupt:  # it reads files of its own yet
    sys.exit(130)

sys.exit(main())
