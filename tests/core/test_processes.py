"""Which process is meant, and whether it is gone."""

import os
import sys

from children import started, until

from spdnn.core.endings import parse, process


def test_a_process_is_gone_when_it_has_ended_or_its_number_is_of_another():
    with started([sys.executable, "-c", "input()"], stdin=-1) as child:
        one = process(child.pid)
        assert one.here
        assert not one.gone
        assert one._replace(start=one.start - 1).gone
        child.stdin.close()
        until(lambda: one.gone, "it is known to have ended, also before anybody asks for its status")
    assert process(child.pid) is None
    assert not process(os.getpid()).gone


def test_of_a_process_elsewhere_nothing_is_known():
    for more in ({"host": "elsewhere"}, {"boot": "another"}):
        one = process()._replace(**more, start=1)
        assert not one.here
        assert not one.gone


def test_a_line_of_text_is_a_process_or_none():
    assert parse(str(process())) == process()
    for text in ("", "host boot 1", "host boot one 2", "host boot 1 2 3"):
        assert parse(text) is None
