"""The machine and the software of a run."""

from typing import Annotated

from spdnn.core.fields import Count, Digest, Positive, Record, column


class Environment(Record):
    """Machine and software.

    Attributes:
        cores: that the process may use: those it may run on, fewer where a control group limits their time.
        memory_bytes: that the process may hold: of the machine, less where a limit is set; null where it is unknown.
        gpu: name of the device that was used; null: none.
        system: operating system and architecture.
        versions: of Python and the packages that matter.
        commit: git commit, with -dirty where its code differs; null outside a checkout.
        code: digest of the package's sources, as installed.
        compiler: that built the kernels, with its flags; null where they were not loaded.
        lock: digest of the names and versions of all packages installed.
        command: that repeats the run.
    """

    cpu: Annotated[str, column()]
    cores: Annotated[Positive, column()]
    memory_bytes: Count | None
    gpu: Annotated[str | None, column()]
    system: str
    versions: dict[str, str]
    commit: Annotated[str | None, column()]
    code: Annotated[Digest, column()]
    compiler: str | None
    lock: Digest
    command: Annotated[str, column()]
