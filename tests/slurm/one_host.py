"""A real Slurm on this host: munged, slurmctld and a slurmd for each node.

Nodes n1 and n2 have two cores and four GPUs each; node big, in a partition of its own, has eight of each; g1 and g2, in
partition gpu, have four of each, and their GPUs have a type.
Partition low has the nodes of main, and loses its jobs to those of main. Jobs, limits, cancelling, and what a job sees
of nodes and GPUs are Slurm's own; only the nodes share one machine, and the GPUs are files of no device.

Debian's packages slurm-wlm and munge are needed, and root: the configuration must lie in /etc/slurm, for Snakemake's
jobs drop SLURM_CONF.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CONFIGURATION = Path("/etc/slurm/slurm.conf")
OURS = "# Written by spdnn's tests, and removed by them.\n"
NODES = ("n1", "n2", "big", "g1", "g2")
TEMPLATE = (
    OURS
    + """
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
MinJobAge=300
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]},{ports[2]} CPUs=2 RealMemory=12000 \\
  Gres=gpu:4 Feature=fast
NodeName=big NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs=8 RealMemory=1000000 Gres=gpu:8
NodeName=g[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[4]},{ports[5]} CPUs=4 RealMemory=100000 \\
  Gres=gpu:a100:4 Feature=fast
PartitionName=gpu Nodes=g[1-2]
PartitionName=main Nodes=n[1-2] Default=YES PriorityTier=2
PartitionName=low Nodes=n[1-2] PriorityTier=1
PartitionName=big Nodes=big
"""
)


class NoSlurm(Exception):
    """This host's Slurm could not be started; the sentence says why."""


@contextlib.contextmanager
def running(seconds: float = 300) -> Iterator[None]:
    """A Slurm that is up; everything is stopped and removed at the end, and a slurm.conf that was there is put back.

    Raises:
        NoSlurm: another Slurm answers here, or ours did not come up in `seconds`; its logs are in the sentence.
    """
    if CONFIGURATION.exists() and " UP" in output("scontrol", "ping"):
        raise NoSlurm(
            f"a Slurm is running here already, as {CONFIGURATION} has it; stop it, or run these tests elsewhere"
        )
    folder = Path(tempfile.mkdtemp(prefix="spdnn-slurm-"))
    folder.chmod(0o755)  # munged wants a way to its socket for everyone
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(configured(folder))
        _start(stack, folder, time.monotonic() + seconds)
        stack.callback(cancel_all)
        yield


@contextlib.contextmanager
def configured(folder: Path) -> Iterator[None]:
    """Our slurm.conf and gres.conf are the host's; whatever was there comes back."""
    host = socket.gethostname().split(".")[0]
    for number in range(8):
        (folder / f"gpu{number}").symlink_to(os.devnull)
    ours = {
        CONFIGURATION: TEMPLATE.format(host=host, folder=folder, ports=free_ports(1 + len(NODES))),
        CONFIGURATION.with_name("gres.conf"): OURS
        + "".join(
            f"NodeName={nodes} Name=gpu {kind}File={folder}/gpu[0-{last}]\n"
            for nodes, kind, last in (("n[1-2]", "", 3), ("big", "", 7), ("g[1-2]", "Type=a100 ", 3))
        ),
    }
    before = {path: path.read_text() for path in ours if path.exists()}
    CONFIGURATION.parent.mkdir(exist_ok=True)
    try:
        for path, text in ours.items():
            path.write_text(text)
        yield
    finally:
        for path in ours:
            path.unlink(missing_ok=True)
            if not (text := before.get(path, OURS)).startswith(OURS):  # else left by tests that were killed
                path.write_text(text)


def _start(stack: contextlib.ExitStack, folder: Path, deadline: float) -> None:
    """Start the daemons, each a child that ends with this process, and wait until all nodes are idle."""

    def daemon(name: str, *command: str) -> None:
        log = folder / f"{name}.log"
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )
        stack.callback(stop, process)
        daemons.append((process, log))

    def until(done: Callable[[], bool]) -> None:
        while not done():
            ended = [log for process, log in daemons if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for _, log in daemons)
                raise NoSlurm(f"Slurm did not come up ({ended[0].stem if ended else 'in time'}):\n{logs}")
            time.sleep(0.1)

    daemons: list[tuple[subprocess.Popen, Path]] = []
    for name in ("state", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    own = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed", "log")]
    daemon("munged", "munged", "--foreground", f"--socket={folder}/munge.socket", *own)
    until((folder / "munge.socket").exists)
    daemon("slurmctld", "slurmctld", "-D", "-c")
    until(lambda: " UP" in output("scontrol", "ping"))
    for node in NODES:
        daemon(f"slurmd.{node}", "slurmd", "-D", "-N", node)
    idle = {f"{node} idle" for node in NODES}
    until(lambda: set(output("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()) == idle)


def stop(process: subprocess.Popen) -> None:
    """End a daemon, gently first."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cancel_all(seconds: float = 300) -> None:
    """Cancel every job and wait until none is left; for `seconds` at most."""
    deadline = time.monotonic() + seconds
    output("scancel", "--user=root")
    while output("squeue", "--noheader") and time.monotonic() < deadline:
        time.sleep(0.1)


def output(*command: str) -> str:
    """What one of Slurm's commands printed; nothing when it failed or hung."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except subprocess.TimeoutExpired:
        return ""


def free_ports(count: int) -> list[int]:
    """Ports of this host that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
