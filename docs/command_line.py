"""The command line for readers: a page with every subcommand and option, made from the parser.

python docs/command_line.py > docs/reference/command-line.md
"""

import argparse
import re
from collections.abc import Iterator

from spdnn.cli import COMMANDS, parser

HEAD = """\
# Command line

Made by `python docs/command_line.py > docs/reference/command-line.md` from the parser of `spdnn`;
`spdnn COMMAND --help` prints the same. The [exit status](environment.md) is 0 where all is done and passed.
"""


def page() -> str:
    """docs/reference/command-line.md."""
    lines = [HEAD, "| command | does |", "|---|---|"]
    lines += [f"| [`spdnn {name}`](#{_anchor(f'spdnn {name}')}) | {line} |" for name, (_, line) in COMMANDS.items()]
    top = parser()
    for command in commands(top):
        if command is not top:
            lines += _section(command)
    return "\n".join(lines)


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and, in order, all parsers of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from commands(below)


def _section(parser: argparse.ArgumentParser) -> list[str]:
    actions = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    ]
    actions = [action for action in actions if action.help is not argparse.SUPPRESS]
    lines = ["", f"## {parser.prog}", "", _text(parser.description or "")]
    if actions:
        lines += ["", "| argument | what |", "|---|---|"]
    formatter = parser._get_formatter()
    for action in actions:
        meaning = formatter._expand_help(action) if action.help else ""
        needed = "required" if action.required and action.option_strings else ""
        lines.append(f"| {_named(action)} | {_cell('; '.join(filter(None, (needed, meaning))))} |")
    return lines


def _named(action: argparse.Action) -> str:
    """The names of an argument and what follows them, as a cell."""
    values = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest)
    values = " ".join(values) if isinstance(values, tuple) else values
    if not action.option_strings:
        return f"`{_cell(values)}`"
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    return names if action.nargs == 0 else f"{names} `{_cell(values)}`"


def _text(words: str) -> str:
    return re.sub(r"(?<!`)([<*])", r"\\\1", " ".join(words.split()))


def _cell(words: str) -> str:
    return _text(words).replace("|", "\\|")


def _anchor(heading: str) -> str:
    return heading.replace(" ", "-")


if __name__ == "__main__":
    print(page())
