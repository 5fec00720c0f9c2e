"""Delivery tags that outlive connections."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_lib.failover.tags import DeliveryTags, UnknownTag


def issued(count: int) -> DeliveryTags[str]:
    tags: DeliveryTags[str] = DeliveryTags()
    assert [tags.issue(f"m{number}") for number in range(1, count + 1)] == list(range(1, count + 1))
    return tags


def test_one_and_multiple() -> None:
    tags = issued(5)
    assert tags.take(2, False) == ["m2"]
    assert tags.take(4, True) == ["m1", "m3", "m4"]
    assert tags.take(0, True) == ["m5"]
    assert tags.take(0, True) == []


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (4, False), (4, True), (-1, False), (1, False), (1, True)])
def test_what_a_broker_would_close_the_channel_for(tag: int, multiple: bool) -> None:
    tags = issued(3)
    tags.take(1, False)
    with pytest.raises(UnknownTag):
        tags.take(tag, multiple)
    assert len(tags) == 2


def test_a_delivery_without_answer_uses_up_a_tag() -> None:
    tags: DeliveryTags[str] = DeliveryTags()
    assert (tags.issue(None), tags.issue("a")) == (1, 2)
    with pytest.raises(UnknownTag):
        tags.take(1, False)
    assert tags.take(2, True) == ["a"]


def test_tags_of_a_lost_connection_are_dropped_silently() -> None:
    tags = issued(3)
    tags.lost()
    assert tags.issue("m1 again") == 4
    assert tags.take(1, False) == tags.take(3, True) == tags.take(1, False) == []
    assert tags.take(4, False) == ["m1 again"]
    with pytest.raises(UnknownTag):
        tags.take(4, False)


def test_kept_deliveries_can_still_be_settled_and_settled_twice() -> None:
    tags = issued(2)
    tags.lost(keep=True)
    assert tags.take(1, False) == ["m1"]
    assert tags.take(1, False) == []
    assert tags.issue("m3") == 3
    assert tags.take(3, True) == ["m2", "m3"]


def test_take_all_leaves_tags_that_may_be_settled_in_vain() -> None:
    tags = issued(2)
    assert tags.take_all() == ["m1", "m2"]
    assert tags.take(2, False) == []


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.just(("issue",)),
            st.just(("lost",)),
            st.tuples(st.just("take"), st.integers(0, 12), st.booleans()),
        ),
        max_size=40,
    )
)
def test_every_delivery_is_settled_once_or_lost(steps) -> None:
    tags: DeliveryTags[int] = DeliveryTags()
    open_, lost_through, last = set(), 0, 0
    for step in steps:
        if step[0] == "issue":
            last += 1
            assert tags.issue(last) == last
            open_.add(last)
        elif step[0] == "lost":
            tags.lost()
            open_, lost_through = set(), last
        else:
            _, tag, multiple = step
            known = tag in open_ or (tag == 0 and multiple) or 0 < tag <= lost_through
            expected = sorted(n for n in open_ if (n <= (tag or last) if multiple else n == tag))
            if known:
                # a lost tag with `multiple` comes before everything that is open
                assert tags.take(tag, multiple) == expected
                open_ -= set(expected)
            else:
                with pytest.raises(UnknownTag):
                    tags.take(tag, multiple)
        assert len(tags) == len(open_)
