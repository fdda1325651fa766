"""`python -m spdnn` is the `spdnn` command."""

import sys

from spdnn.cli import main

sys.exit(main())
