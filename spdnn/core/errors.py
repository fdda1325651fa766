"""The errors of spdnn: each is one clear sentence for a person, and none is ever shown as a traceback."""

import difflib
import importlib.util
import sys
from collections.abc import Collection

from spdnn.core.addresses import hide_secrets


def install(extra: str) -> str:
    """How to install an extra of pyproject.toml, for sentences: no package index has spdnn, so from its sources."""
    return f"pip install -e '.[{extra}]' in a clone of spdnn"


def absent(module: str, extra: str, package: str = "") -> str | None:
    """None where a module can be imported, else the sentence that names its package and the extra that installs it."""
    if importlib.util.find_spec(module) is None:
        return f"the package {package or module} is not installed; {install(extra)} brings it"
    return None


class SpdnnError(Exception):
    """Something the user can mend; the message says the value, what is allowed, and where, and no address's secret."""

    def __init__(self, sentence: object = ""):
        super().__init__(hide_secrets(str(sentence)))


class InputError(SpdnnError, ValueError):
    """A file, argument or configuration that is not what it must be."""


def fail(sentence: str, status: int = 1) -> int:
    """Print what a command ends with on standard error; its exit status."""
    print(f"spdnn: {hide_secrets(sentence)}", file=sys.stderr)
    return status


def unknown(what: str, name: str, allowed: Collection[str]) -> InputError:
    """The error of a name that is none of those allowed, with the nearest of them."""
    return InputError(f"{what} {name!r} is not known{nearest(name, allowed)}: it must be one of {', '.join(allowed)}")


def nearest(name: str, allowed: Collection[str]) -> str:
    """A question after the allowed name that is nearest to a wrong one; empty where none is near."""
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.7) if isinstance(name, str) else []
    return f" (did you mean {near[0]!r}?)" if near and near[0] != name else ""


class MemoryTooSmall(InputError):
    """A memory limit in which a run does not fit; `least` bytes are what it needs; `device`: of a device, and not of
    this process.
    """

    def __init__(self, sentence: str, least: int, device: bool = False):
        super().__init__(sentence)
        self.least, self.device = least, device


class Unavailable(SpdnnError):
    """A tool, device, library or file that is needed here and is absent."""


class Unsuitable(SpdnnError):
    """An engine that cannot run this network or these inputs: a normal answer, not a fault."""


def past_float32(k: int) -> SpdnnError:
    """The error of a sum in layer k (0-based) that is not finite in float32 (docs/explanation/verification.md)."""
    return SpdnnError(f"a value of layer {k + 1} passed the range of float32; the network needs smaller weights")
