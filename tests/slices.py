"""Which quarter of the full set a run takes, and what it runs besides: the full tests of folders that have changed.

The cache of tests remembers when each slice was last run, and the last commit at which one passed. Without it, the
slice is the hash of the checkout's tree modulo SLICES.
"""

import json
import os
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import compile_cache

from spdnn.core.files import replacing

SLICES = 4


@dataclass(frozen=True)
class Slice:
    """One of the SLICES; `commit`: that is tested; `since`: the last that passed; `folders`: changed in between."""

    number: int
    commit: str
    since: str
    folders: frozenset[str]

    @property
    def sentence(self) -> str:
        changed = f"; all full tests of {', '.join(sorted(self.folders))}, changed since {self.since[:12]}"
        return f"full tests: slice {self.number} of 0 to {SLICES - 1}{changed * bool(self.folders)}"

    @property
    def arguments(self) -> list[str]:
        """For pytest (conftest.py)."""
        return [f"--slice={self.number}", f"--changed={','.join(sorted(self.folders))}"]

    def passed(self) -> None:
        """Remember that this slice was run now, and that its commit passed."""
        runs = _remembered().get("runs", {}) | {str(self.number): time.time()}
        compile_cache.FOLDER.mkdir(parents=True, exist_ok=True)
        with replacing(_file(), durable=False) as temporary:
            temporary.write_text(json.dumps({"runs": runs, "passed": self.commit}))


def choose(root: Path) -> Slice:
    """The slice that was run longest ago, and the folders that changed in this checkout since one passed."""
    known = _remembered()
    commit, since = _git(root, "rev-parse", "HEAD"), known.get("passed", "")
    # The words of folders: spdnn/kernels/cuda and tests/cuda share one.
    changed = _git(root, "diff", "--name-only", since, "HEAD").splitlines() if since else []
    folders = {name for path in changed for name in Path(path).parts[:-1]} - {"spdnn", "tests"}
    if runs := known.get("runs"):
        number = min(range(SLICES), key=lambda slice_: runs.get(str(slice_), 0))
    else:
        number = int(_git(root, "rev-parse", "HEAD^{tree}") or "0", 16) % SLICES
    return Slice(number, commit, since, frozenset(folders))


def of_slice(tests: Mapping[str, str], number: int, changed: Collection[str]) -> set[str]:
    """The tests that slice `number` runs: every fourth in the order of their names, and those of changed folders.

    Args:
        tests: by their names, the path of each below tests/.
    """
    taken = set(sorted(tests)[number::SLICES])
    return taken | {name for name, path in tests.items() if set(Path(path).parts[:-1]) & set(changed)}


def _remembered() -> dict:
    try:
        return json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}


def _file() -> Path:
    return compile_cache.FOLDER / "slices.json"


def _git(root: Path, *arguments: str) -> str:
    """What git prints; nothing outside a checkout, or of a commit that it lacks."""
    # Of this checkout, also in a hook of git, which is told its repository in variables.
    given = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False, env=given)
    return done.stdout.strip() if done.returncode == 0 else ""
