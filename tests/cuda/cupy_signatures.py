"""The signatures of the CuPy installed: what a stand-in is called with must fit them, so that a renamed argument fails.

CuPy's own functions are of Cython, and most have their signature as the first line of their docstring alone.
"""

import functools
import inspect
import re


def signature(real) -> inspect.Signature:
    """Of a function, method or class of CuPy, without `self`.

    Raises:
        ValueError: neither Python nor the docstring tells it.
    """
    try:
        found = inspect.signature(real)
        parameters = list(found.parameters.values())
        return found.replace(
            parameters=parameters[1:] if parameters[:1] and parameters[0].name == "self" else parameters
        )
    except ValueError:
        lines = (real.__doc__ or "").strip().splitlines() or [""]
        told = re.fullmatch(r"[\w.]+\((.*)\)(?: -> .*|: .*)?", lines[0].strip())
        if not told:
            raise ValueError(f"{real} does not tell its arguments") from None
    kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for text in filter(None, (part.strip() for part in told[1].split(","))):
        name, _, default = text.partition("=")
        name = name.split()[-1]  # after its type
        if name == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif name != "self":
            parameters.append(inspect.Parameter(name, kind, default=default or inspect.Parameter.empty))
    return inspect.Signature(parameters)


def bound(real, stand_in):
    """The function `stand_in`, called only with what `real` takes too."""
    like = signature(real)

    def call(*arguments, **named):
        like.bind(*arguments, **named)
        return stand_in(*arguments, **named)

    return call


def bound_as(real):
    """A decorator: methods of a stand-in that the class or module `real` has too are called only with what it takes."""

    def decorate(cls):
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and hasattr(real, name) and not name.startswith("_"):
                like = signature(getattr(real, name))

                @functools.wraps(method)
                def call(self, *arguments, like=like, method=method, **named):
                    like.bind(*arguments, **named)
                    return method(self, *arguments, **named)

                setattr(cls, name, call)
        return cls

    return decorate
