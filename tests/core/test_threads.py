"""Work on several items at once (spdnn/core/threads.py)."""

import threading

import pytest

from spdnn.core.threads import in_order


@pytest.mark.parametrize(("threads", "ahead"), [(1, None), (1, 2), (3, None), (3, 5)])
def test_results_come_in_order_and_no_more_wait_than_may(threads, ahead):
    taken = []
    results = in_order(lambda item: item * item, iter_noting(range(20), taken), threads, ahead)
    for k in range(20):
        assert next(results) == k * k
        assert len(taken) <= k + 1 + (ahead or threads)
    assert next(results, None) is None


def iter_noting(items, taken):
    for item in items:
        taken.append(item)
        yield item


def test_an_error_comes_at_its_item():
    results = in_order(lambda item: 6 // item, [3, 2, 0, 1], 2)
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_whoever_stops_early_does_not_wait():
    """Collected in a thread that is beginning, an iterator that waited for its threads never came back."""
    going_on, ended = threading.Event(), threading.Event()

    def stops_early():
        results = in_order(lambda item: item and going_on.wait(), range(4), 2)
        assert next(results) == 0
        del results
        ended.set()

    thread = threading.Thread(target=stops_early)
    thread.start()
    try:
        assert ended.wait(30)
    finally:
        going_on.set()
        thread.join()
