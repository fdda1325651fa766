"""How busy the machine is with other work: read from the system's counters, kept in records, and repeated if asked."""

import time

import pytest
from refusals import refuses

from spdnn.cli import main
from spdnn.core import load
from spdnn.core.limits import BUSY
from spdnn.core.load import Load, LoadMonitor, Usage, load_of
from spdnn.core.validation import builtins
from spdnn.runs.records.files import check_content, record_of
from spdnn.runs.records.run_record import RunRecord, busy_part
from spdnn.runs.verify.judging import judge
from tests.runs.records.test_run_record import changed

STAT = (
    "cpu  9 9 9 9\ncpu0 {user} 0 0 500 0 0 0 {steal} 0 0\ncpu1 0 0 {system} 500 0 0 0 0 0 0\ncpu7 9 9 9 9 9 9 9 9\nx\n"
)


def of(others, throttled=0.0):
    return Load(others=others, throttled=throttled)


@pytest.fixture
def system(tmp_path, set_all):
    """A function that writes the counters of a system of two cores, in ticks, and of a control group, in ns."""
    set_all(load, _ROOT=tmp_path, affinity=lambda: {0, 1})
    group = tmp_path / "cpu" / "jobs"
    group.mkdir(parents=True)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("3:cpu,cpuacct:/jobs\n1:memory:/x\n")
    (tmp_path / "proc" / "self" / "mountinfo").write_text("9 8 0:7 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n")

    def write(user=0, system=0, steal=0, throttled=0):
        (tmp_path / "proc" / "stat").write_text(STAT.format(user=user, system=system, steal=steal))
        (group / "cpu.stat").write_text(f"nr_periods 5\nthrottled_time {throttled}\n")

    write()
    return write


def test_other_work_is_the_systems_less_ours(system):
    began = load._counters()
    system(user=200, system=100, steal=100, throttled=800_000_000)
    now = load._counters()
    cores = {core: now.cores[core] - began.cores[core] for core in now.cores}
    told = load_of([Usage(4.0, cores, 2.0, now.throttled - began.throttled)])
    # 4 s of two cores: 4 s were busy, 2 of them ours; 0.8 s were throttled.
    assert told == of(pytest.approx(0.25), pytest.approx(0.1))


def test_ranks_of_a_node_are_not_other_work():
    ranks = [Usage(1.0, {0: 0.9, 1: 0.8}, 0.8, None), Usage(1.0, {0: 0.9, 1: 0.8}, 0.7, None)]
    assert load_of(ranks) == of(pytest.approx(0.1), None)


def test_what_cannot_be_read_is_unknown(system, tmp_path):
    (tmp_path / "proc" / "stat").write_text("cpu0 a b\n")
    (tmp_path / "proc" / "self" / "cgroup").unlink()
    told = LoadMonitor().load()
    assert told.others is None
    assert told.throttled is None
    assert told.busy <= BUSY


def test_a_watch_is_as_long_as_asked():
    begun = time.perf_counter()
    LoadMonitor().load(0.05)
    assert time.perf_counter() - begun >= 0.05


@pytest.fixture
def machine_has(monkeypatch):
    """A function that gives the machine these loads, one after another."""

    def follow(*loads):
        following = iter(loads)
        monkeypatch.setattr(LoadMonitor, "load", lambda self, least=0.0: next(following))

    return follow


@pytest.fixture
def made(small_run, machine_has):
    """A function that makes the record of two repeats, whose machine has one load after another."""

    def make(*loads, again=0, until=None):
        machine_has(*loads)
        network, inputs, measured, result = small_run(2, again, until)
        return record_of("case", measured, judge(network, inputs, result), "again")

    return make


def test_a_busy_run_is_repeated_and_every_attempt_counts(made):
    record = made(of(0.5), of(0.2, 0.1), of(0.05), again=3)
    assert record.load.others == 0.05
    assert busy_part(record) is None
    assert [one.busy for one in record.passed_over] == [0.5, pytest.approx(0.3)]
    assert len(record.seconds) == 2
    record = made(of(0.5), of(0.2), of(0.4), again=2)  # never quiet: the quietest counts
    assert busy_part(record) == 0.2
    assert [one.others for one in record.passed_over] == [0.5, 0.4]
    assert not made(of(0.05), again=3).passed_over
    unknown = made(of(None, None), again=3)
    assert busy_part(unknown) is None
    assert unknown.load.others is None


def test_repeats_end_with_the_time_and_the_first_is_kept(made):
    assert len(made(of(0.5), again=3, until=0.0).seconds) == 1
    assert not made(of(0.5), again=3, until=0.0).passed_over
    record = made(of(0.5), of(0.2), of(0.05), again=2, until=time.perf_counter() + 60)
    assert (len(record.seconds), len(record.passed_over)) == (2, 2)


def test_attempts_passed_over_were_busier(made):
    content = builtins(made(of(0.5), of(0.2), again=1)) | {"seal": None}
    check_content(RunRecord, content, "r")
    quieter, more = changed(content, "passed_over.0.others", 0.1), changed(content, "load.others", 1.5)
    refuses("passed_over: an attempt on a quieter machine", check_content, RunRecord, quieter, "r")
    refuses(r"load\.others", check_content, RunRecord, more, "r")


def test_the_terminal_and_compare_say_it(tmp_path, capsys, machine_has):
    words = ["challenge", "--neurons", "1024", "--layers", "2", "--count", "64", "--inputs", "digits", "--no-cache"]
    quiet, busy = tmp_path / "quiet.json", tmp_path / "busy.json"
    for path, loads in ((quiet, [of(0.01)] * 2), (busy, [of(0.3), of(0.4), of(0.3)])):
        machine_has(*loads)
        assert main([*words, "--record", str(path), "--repeat-if-busy", "2"]) == 0
        said = capsys.readouterr().out
        assert ("BUSY: other work took 30 % of its 2 cores, in the quietest of 3 attempts" in said) == (path == busy)
    assert main(["compare", str(quiet), str(busy)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Busy machine in B (other work above 10 %), so times may be longer: radixnet-1024-2" in said
    assert "Busy machine in A" not in said
