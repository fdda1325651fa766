"""`spdnn completion`: what a shell needs to complete commands and options."""


def add(command) -> None:
    command.description = (
        "Print a script that completes `spdnn` in a shell. Load it where the shell starts:\n"
        "  bash: spdnn completion bash > ~/.local/share/bash-completion/completions/spdnn\n"
        "  zsh:  spdnn completion zsh > a folder of $fpath, as _spdnn"
    )
    command.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="shell to print it for")
    command.set_defaults(run=_completion)


def _completion(args) -> None:
    from spdnn.cli import parser
    from spdnn.core.errors import Unavailable, install

    try:
        import shtab
    except ImportError:
        raise Unavailable(f"the package shtab is not installed; {install('full')} brings it") from None
    print(shtab.complete(parser(), args.shell))
