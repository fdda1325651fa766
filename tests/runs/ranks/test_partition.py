"""Who starts with which inputs, and which rows move."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from spdnn.runs.ranks import partition
from spdnn.runs.ranks.run import Ranks


@given(st.sampled_from(partition.PARTITIONS), st.integers(1, 500), st.integers(1, 40))
def test_every_input_has_one_rank_and_shares_are_even(name, count, ranks):
    parts = [partition.part(name, count, ranks, rank) for rank in range(ranks)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(count))
    sizes = [part.size for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[0] == max(sizes)
    for part in parts:
        assert (np.diff(part) == (1 if name != "cyclic" else ranks)).all()


def test_another_name_is_refused():
    said = "partition 'even' is not known: it must be one of static, cyclic, rebalanced"
    refuses(said, partition.part, "even", 10, 2, 0)


some_rows = st.tuples(st.integers(0, 300), st.integers(0, 100)).map(lambda pair: (pair[0], sum(pair)))
rows_and_room = st.lists(some_rows, min_size=1, max_size=12)


@given(rows_and_room)
def test_targets_keep_all_rows_within_the_room_and_are_as_even_as_it_allows(pairs):
    rows, room = (np.array(part) for part in zip(*pairs, strict=True))
    wanted = partition.targets(rows, room)
    assert wanted.sum() == rows.sum()
    assert (wanted <= room).all()
    assert (wanted >= 0).all()
    free = wanted[wanted < room]
    assert wanted.max() <= (free.min() + 1 if free.size else wanted.max())


@given(rows_and_room)
def test_moves_give_each_what_it_wants_and_no_rank_both_sends_and_receives(pairs):
    rows, room = (np.array(part) for part in zip(*pairs, strict=True))
    wanted = partition.targets(rows, room)
    moving = partition.moves(rows, wanted)
    assert np.array_equal(rows - moving.sum(axis=1) + moving.sum(axis=0), wanted)
    assert not ((moving.sum(axis=1) > 0) & (moving.sum(axis=0) > 0)).any()
    assert moving.sum() == abs(rows - wanted).sum() // 2


def test_the_layer_before_which_an_exchange_paid_most_is_told():
    log = SimpleNamespace(exchanges=[], best=(2e9, 3e9, 4))
    ranks = SimpleNamespace(partition=partition.REBALANCED, exchanges_rows=True)
    told = Ranks._sentence(ranks, log, SimpleNamespace(reductions=("dead",)))
    assert told == (
        "no rows were exchanged: the largest gain, 2e+09 edges of one rank before layer 5, "
        "was not above its cost of 3e+09"
    )
