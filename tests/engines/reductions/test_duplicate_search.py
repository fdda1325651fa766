"""When to search for identical rows (spdnn/engines/reductions/inputs.py)."""

from spdnn.engines.reductions.inputs import SEARCH_AHEAD, SEARCH_AHEAD_AGAIN, SETTLED, DuplicateSearch

ROWS, AHEAD = 1000, 1e9
CHEAP = 0.9 * SEARCH_AHEAD * AHEAD


def test_each_search_in_vain_doubles_the_layers_until_the_next():
    search, searched = DuplicateSearch(), []
    for k in range(1, 1920):
        if search.layers_to_search(k, ROWS, 0.0, CHEAP, AHEAD) == 0:
            searched.append(k)
            search.finish(k, ROWS, 0)
    assert searched == [1, 3, 7, 15, 31, 63, 127, 255, 511, 1023]
    assert search.layers_to_search(1040, ROWS, 0.0, CHEAP, AHEAD) == 1023 + 1024 - 1040


def test_one_that_paid_is_followed_up_at_once_and_may_cost_more():
    search, dear = DuplicateSearch(), 0.9 * SEARCH_AHEAD_AGAIN * AHEAD
    assert search.layers_to_search(1, ROWS, 0.0, dear, AHEAD) is None
    search.finish(1, ROWS, ROWS // 2)
    assert search.layers_to_search(2, ROWS, 0.0, dear, AHEAD) == 0
    search.finish(2, ROWS, ROWS // 100)
    assert search.layers_to_search(3, ROWS, 0.0, dear, AHEAD) is None
    assert search.layers_to_search(3, ROWS, 0.0, CHEAP, AHEAD) == 1


def test_none_while_many_rows_die_or_one_is_left_or_little_is_ahead():
    search = DuplicateSearch()
    assert search.layers_to_search(1, ROWS, 2 * SETTLED, CHEAP, AHEAD) is None
    assert search.layers_to_search(1, 1, 0.0, CHEAP, AHEAD) is None
    assert search.layers_to_search(1, ROWS, 0.0, CHEAP, AHEAD / 2) is None
    assert (
        search.layers_to_search(1, ROWS, 0.0, CHEAP, AHEAD / 2, stopped=True) == 0
    )  # what a break costs is spent already
