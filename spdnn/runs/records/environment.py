"""The machine and the software of a run, and how busy the machine was."""

from typing import Annotated

from spdnn.core.fields import Count, Digest, Part, Positive, Record, column


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


class Load(Record):
    """How busy the machine was with other work while the clock ran; of several nodes, the busiest.

    Attributes:
        others: processor time of other processes on the cores of the run / (cores x seconds); null where it is unknown.
        throttled: time that a limit of the control group took / (cores x seconds); null where it is unknown.
    """

    others: Annotated[Part | None, column("other_work_share")]
    throttled: Annotated[Part | None, column("throttled_share")]

    @property
    def busy(self) -> float:
        """Both parts together; of what is unknown, 0."""
        return (self.others or 0.0) + (self.throttled or 0.0)
