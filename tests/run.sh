#!/bin/sh
# All that is checked: lint first, then the tests. Arguments go to pytest.
set -eu
sh tests/lint.sh
exec python -m pytest "$@"
