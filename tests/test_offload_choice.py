"""Which weights stay under a budget: the choice fits, and none takes less time."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.costs.offload_choice import Item, choose

items = st.lists(
    st.builds(Item, st.integers(1, 60), st.integers(1, 50).map(float)), min_size=1, max_size=9
)


def copy_s(items, copied):
    return sum(items[position].copy_s for position in copied)


def fitting_sets(items, room):
    """All choices that fit: what stays, and a buffer for the largest of the others."""
    for number in range(len(items) + 1):
        for copied in itertools.combinations(range(len(items)), number):
            stays = sum(each.bytes for place, each in enumerate(items) if place not in copied)
            if stays + max((items[place].bytes for place in copied), default=0) <= room:
                yield copied


@given(items, st.integers(0, 200))
def test_the_choice_fits_the_room_and_none_takes_less_time(items, more):
    room = max(item.bytes for item in items) + more
    found = choose(items, room)
    assert found.staying_bytes + found.buffer_bytes <= room
    best_s = min(copy_s(items, copied) for copied in fitting_sets(items, room))
    assert copy_s(items, found.copied) == pytest.approx(best_s)


many = st.lists(
    st.builds(Item, st.integers(1, 10**9), st.floats(1e-6, 1.0)), min_size=1, max_size=40
)


@given(many, st.floats(0, 1), st.floats(0, 1))
def test_more_memory_never_takes_more_time(items, first, second):
    sizes = [item.bytes for item in items]
    least, total = max(sizes), sum(sizes)
    small, large = (round(least + part * (total - least)) for part in sorted([first, second]))
    found = [choose(items, room) for room in (small, large)]
    assert found[0].staying_bytes + found[0].buffer_bytes <= small
    assert copy_s(items, found[1].copied) <= copy_s(items, found[0].copied) * (1 + 1e-9)


def test_all_stay_where_they_fit_and_all_are_copied_in_where_only_the_largest_fits():
    items = [Item(10, 1.0), Item(30, 2.0), Item(20, 1.5)]
    assert choose(items, 60).copied == frozenset()
    assert choose(items, 30).copied == {0, 1, 2}
    with pytest.raises(ValueError, match="do not hold the largest"):
        choose(items, 29)
