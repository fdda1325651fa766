"""A process that compiles: a list of jobs as JSON on standard input, their logs as JSON on standard output.

A job is a source and the compiler's options. One process can hold one NVRTC, so each toolkit has processes of its own;
the argument, when there is one, is the folder that has its NVRTC and bindings (it must be in PYTHONPATH as well).
"""

import ctypes
import json
import sys
from pathlib import Path


def compiled(text: str, options: list[str]) -> tuple[bool, str]:
    """Whether it compiles, and the log of NVRTC and ptxas."""
    from cuda.bindings import nvrtc

    program = asked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    given = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
    log = b" " * asked(nvrtc.nvrtcGetProgramLogSize(program))
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    return int(status) == 0, log.decode(errors="replace").strip("\0 \n")


def asked(answer: tuple):
    """The result of a call of NVRTC, which gives its status first."""
    status, *result = answer
    if int(status):
        raise RuntimeError(f"NVRTC: {status.name}")
    return result[0] if len(result) == 1 else result


def main(folder: str | None = None) -> None:
    if folder:  # the bindings look for their library in site-packages, not in PYTHONPATH; one that is loaded they take
        (library,) = Path(folder).glob("nvidia/*/lib/libnvrtc.so.*")
        ctypes.CDLL(str(library))
    from cuda.bindings import nvrtc

    logs = [compiled(job["source"], job["options"]) for job in json.load(sys.stdin)]
    told = {"version": asked(nvrtc.nvrtcVersion()), "architectures": asked(nvrtc.nvrtcGetSupportedArchs())}
    json.dump({**told, "logs": logs}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
