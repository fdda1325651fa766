"""The `spdnn` command: its subcommands, its errors and its exit status."""

import argparse
import contextlib
import importlib
import io
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Collection, Sequence

from spdnn import __version__
from spdnn.core import resources
from spdnn.core.addresses import hide_secrets
from spdnn.core.endings import check_ended, clean_on_terminate, discard_output, farewell, process_seconds
from spdnn.core.errors import SpdnnError, fail, nearest
from spdnn.runs.world import connect, launched_count, launched_rank, separate_tasks, tell_and_end

EPILOG = """\
from nothing to a verified run:
  spdnn challenge --neurons 1024 --layers 120 --inputs digits --record run.json

with files of your own:
  spdnn network import weights.npz -o net.safetensors --last none
  spdnn infer --network net.safetensors --inputs x.npz --categories out.txt --record run.json

environment: TQDM_DISABLE=1 switches progress off, TQDM_MININTERVAL=SECONDS sets how often it is shown (default: a bar
on a terminal, elsewhere a line on standard error at most every 30 s)

exit status: 0 done (and passed, where something was verified), 1 an error or a failed verification (one sentence
on standard error), 2 wrong arguments, 130 interrupted, 143 terminated
"""


class _Parser(argparse.ArgumentParser):
    """A command or subcommand: descriptions keep their lines, options are spelled out, a mistake is one sentence."""

    def __init__(self, **words):
        super().__init__(**{"formatter_class": _formatter, "allow_abbrev": False} | words)

    def parse_known_args(self, args=None, namespace=None):
        self._words = args or []
        return super().parse_known_args(args, namespace)

    def error(self, message):
        actions = next(
            (action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)), {}
        )
        if actions and "are required" in message:
            message = f"{message}, one of {', '.join(actions)}"
        message = hide_secrets(_suggest(message, self._words, _options(self)))
        self.exit(2, f"{self.prog}: {message} (see `{self.prog} --help`)\n")

    def _get_values(self, action, arg_strings):
        # `--inputs=--` names a file: argparse before Python 3.13 takes the value for the end of the options.
        if arg_strings == ["--"] and action.option_strings and action.nargs is None:
            return self._get_value(action, "--")
        return super()._get_values(action, arg_strings)


def _suggest(message: str, words: Sequence[str], options: Collection[str]) -> str:
    """The message of argparse, or where a word is unknown, a sentence with the nearest known word."""
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    unknown = [name for name in names if len(name) > 2 and name not in options]
    if choice := re.fullmatch(r"argument (.*?): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL):
        where, word, known = choice[1], choice[2], re.findall(r"[\w.+-]+", choice[3])
    elif unknown:  # argparse would first ask for what is missing
        where, word, known = "option", unknown[0], options
    else:
        return message
    hint = nearest(word, known) or ("" if known is options else f"; it must be one of {', '.join(known)}")
    return f"{where.lower()} {word!r} is not known{hint}"


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of the commands below it."""
    options = set()
    for action in parser._actions:
        options.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            options.update(*map(_options, action.choices.values()))
    return options


def _formatter(prog: str) -> argparse.HelpFormatter:
    width = max(60, min(110, shutil.get_terminal_size((100, 24)).columns))
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=32, width=width)


# Subcommands: the function that adds the arguments, and the line of `spdnn --help`.
COMMANDS = {
    "challenge": ("run:add_challenge", "regenerate, run and verify a problem of the Graph Challenge"),
    "infer": ("run:add_infer", "run a network on inputs"),
    "run": ("run:add_run", "repeat a run from the request of a record"),
    "verify": ("record:add_verify", "check a file of categories (challenge and infer verify by themselves)"),
    "network": ("network:add", "make, import, export or show a network"),
    "inputs": ("network:add_inputs", "make the inputs of the challenge"),
    "bench": ("bench:add", "compare your model, a sparse product or our kernels with other libraries"),
    "record": ("record:add", "check records, or repeat their runs"),
    "report": ("report:add", "render records as an HTML page, or one figure of it"),
    "compare": ("compare:add", "compare two sets of records"),
    "plan": ("plan:add", "predict the time on more devices"),
    "info": ("info:add", "list the engines that run here, and measure the limits of this machine"),
    "completion": ("info:add_completion", "print the completion script of a shell"),
}


def parser(complete: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command line. Only the subcommands of `complete` have their arguments: those import libraries."""
    top = _Parser(
        prog="spdnn",
        description="Sparse deep neural network inference at scale: exact, verified, reproducible.",
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"spdnn {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, (where, line) in COMMANDS.items():
        command = commands.add_parser(name, help=line)
        if name in complete:
            module, function = where.split(":")
            getattr(importlib.import_module(f"spdnn.cli.{module}"), function)(command)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status. An error is one sentence on standard error.

    On several ranks, an error of one ends all of them.
    """
    if arguments is None:
        _open_streams()
    with clean_on_terminate(own=arguments is None):
        try:
            return _run(arguments)
        finally:
            if arguments is None:
                for stream in (sys.stdout, sys.stderr):
                    discard_output(stream)


def _run(arguments: list[str] | None) -> int:
    begun = time.perf_counter() - (process_seconds() if arguments is None else 0)
    args = argparse.Namespace()
    try:
        if sentence := resources.too_small_to_start():
            return _refuse(sentence)
        args = _parse(arguments)
        args.begun = begun
        try:
            from spdnn.cli.arguments import check_files  # with the libraries that a command needs

            check_files(args)
        except SpdnnError as error:
            return _refuse(str(error))
        if not getattr(args, "several", False) and (ranks := launched_count()) > 1:
            return _refuse(f"{ranks} processes were started, and this command takes one; challenge and infer take more")
        if (tasks := separate_tasks()) > 1 and (sentence := _refusal_of_tasks(args, tasks)):
            return fail(sentence) if os.environ["SLURM_PROCID"] == "0" else 1
        try:
            status = args.run(args) or 0
        except Exception:
            check_ended()  # a library may swallow what a signal raised, and fail in its own way
            raise
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise SpdnnError(f"standard output cannot be written to ({error.strerror}); all else is done") from error
        if connect():
            connect().barrier(patient=True)  # rank 0 verifies and writes; what ends it ends all
        return status
    except SpdnnError as error:
        return _fail(str(error), 1)
    except BrokenPipeError:
        return _fail(None, 1)
    except KeyboardInterrupt:
        return _fail(farewell(), 130)
    except BaseException as error:
        if resources.is_out_of_memory(error):
            return _fail(resources.out_of_memory(vars(args)), 1)
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            return _fail(f"{where}{error.strerror or error}", 1)
        if connect() and not connect().ending:
            if not isinstance(error, SystemExit):
                traceback.print_exc()
            connect().abort(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
        raise


def _open_streams() -> None:
    """Make standard streams that take whatever a command writes, so that no output is lost for a line of text.

    A stream that was closed (`>&-`) is /dev/null, which no other file may be in place of. What its encoding does not
    have (a name in ASCII) is escaped. To a file or pipe, text goes in large parts, whatever PYTHONUNBUFFERED says.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=False, write_through=False)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    """The arguments; of several ranks that were started together, the first alone prints what is wrong with them."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] == "help":
        words = [*words[1:2], "--help"]
    command = parser(words[:1])  # options before the subcommand end the program
    if launched_rank() == 0:
        return command.parse_args(words)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing), contextlib.redirect_stdout(nothing):
        return command.parse_args(words)


def _refuse(sentence: str) -> int:
    """Print a sentence that all processes would print, on the first one alone; the exit status."""
    return fail(sentence) if launched_rank() == 0 else 1


def _refusal_of_tasks(args: argparse.Namespace, tasks: int) -> str | None:
    """Why a command that takes ranks, or writes files, does not run in each task of an `srun` that started no MPI."""
    if getattr(args, "several", False):
        start = f"start ranks with `srun --mpi=pmi2 -n {tasks} spdnn ...` or `mpiexec -n {tasks} spdnn ...`"
    elif any(getattr(args, name.partition("/")[0]) for name in getattr(args, "writes", ())):
        start = "this command takes one, `srun -n 1`"
    else:
        return None
    apart = "where each is to write files of its own, unset SLURM_STEP_NUM_TASKS"
    return f"srun started {tasks} tasks without MPI, and each would do the same and write the same: {start}; {apart}"


def _fail(sentence: str | None, status: int) -> int:
    """Print an error of this process; one of several ranks ends all of them."""
    if connect():
        tell_and_end(sentence or "standard output was closed", status)
    return fail(sentence, status) if sentence else status
