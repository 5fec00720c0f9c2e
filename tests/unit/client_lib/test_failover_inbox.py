"""Events that wait for the application's thread, and timers."""

import threading
import time

import pika.exceptions
import pytest

from client_lib.failover.inbox import Inbox, Timers
from tests.support.wait import wait_for


def test_timers_in_order_and_removed() -> None:
    timers = Timers()
    late, early, same = (timers.add(when, lambda: None) for when in (2.0, 1.0, 1.0))
    assert timers.next_at() == 1.0
    assert timers.due(0.9) == []
    timers.remove(early)
    assert timers.due(1.0) == [same]
    assert timers.pop(same) is not None
    assert timers.pop(same) is None
    timers.remove(same)
    timers.remove(99)
    assert timers.due(5.0) == [late]
    timers.remove(late)
    assert timers.pop(late) is None
    assert (timers.next_at(), len(timers)) == (None, 0)


def test_events_run_here_in_order_and_later_ones_next_time() -> None:
    inbox = Inbox()
    seen: list[object] = []

    def first() -> None:
        seen.append(("first", threading.get_ident()))
        inbox.post(lambda: seen.append("third"))

    def post_both() -> None:
        inbox.post(first)
        inbox.post(lambda: seen.append("second"))

    worker = threading.Thread(target=post_both)
    worker.start()
    worker.join()
    assert seen == []
    inbox.process(0)
    assert seen == [("first", threading.get_ident()), "second"]
    inbox.process(0)
    assert seen[-1] == "third"
    inbox.process(0)
    assert len(seen) == 3


def test_waiting_ends_with_the_first_event() -> None:
    inbox, seen = Inbox(), []
    threading.Timer(0.05, lambda: inbox.post(lambda: seen.append(1))).start()
    inbox.process(None)
    assert seen == [1]
    began = time.monotonic()
    inbox.process(0.05)
    assert 0.05 <= time.monotonic() - began < 20
    threading.Timer(0.05, inbox.poke).start()
    inbox.process(None)


def test_timers_run_in_process() -> None:
    inbox, seen = Inbox(), []
    gone = inbox.call_later(0.01, lambda: seen.append("gone"))
    last = inbox.call_later(0.03, lambda: seen.append("last"))

    def keep() -> None:
        seen.append("kept")
        inbox.remove(last)

    inbox.call_later(0.02, keep)
    inbox.remove(gone)
    inbox.process(None)
    assert seen == ["kept"]
    inbox.process(0.05)
    assert seen == ["kept"]


def test_a_timer_removed_by_one_that_is_due_with_it() -> None:
    inbox, seen = Inbox(), []
    ids = {}

    def first() -> None:
        seen.append("a")
        inbox.remove(ids["b"])

    inbox.call_later(0, first)
    ids["b"] = inbox.call_later(0, lambda: seen.append("b"))
    inbox.process(0.01)
    assert seen == ["a"]


def test_an_exception_leaves_the_rest_for_the_next_call() -> None:
    inbox, seen = Inbox(), []

    def fails() -> None:
        raise KeyError("of the callback")

    inbox.post(fails)
    inbox.post(lambda: seen.append("after"))
    with pytest.raises(KeyError):
        inbox.process(None)
    assert seen == []
    inbox.process(0)
    assert seen == ["after"]


def test_callbacks_do_not_nest() -> None:
    inbox, seen = Inbox(), []

    def outer() -> None:
        assert inbox.dispatching_here
        inbox.post(lambda: seen.append("inner"))
        inbox.process(0.01)
        assert seen == []
        with pytest.raises(pika.exceptions.ReentrancyError):
            inbox.process(None)
        seen.append("outer")

    inbox.post(outer)
    inbox.process(0)
    assert not inbox.dispatching_here
    assert seen == ["outer"]
    inbox.process(0)
    assert seen == ["outer", "inner"]


def test_waiting_ends_when_there_is_nothing_to_wait_for() -> None:
    inbox, over = Inbox(), threading.Event()
    threading.Timer(0.05, over.set).start()
    inbox.process(None, over.is_set)
    assert over.is_set()


def test_another_thread_s_turn_ends_our_waiting() -> None:
    """What it ran may be what our caller waits for."""
    inbox, entered, leave = Inbox(), threading.Event(), threading.Event()

    def event() -> None:
        entered.set()
        leave.wait(30)

    dispatcher = threading.Thread(target=inbox.process, args=(None,), daemon=True)
    dispatcher.start()
    inbox.post(event)
    assert entered.wait(30)
    waiter = threading.Thread(target=inbox.process, args=(None,), daemon=True)
    waiter.start()
    wait_for(lambda: inbox._waiting == 1, what="the second waits")
    leave.set()
    for thread in (dispatcher, waiter):
        thread.join(30)
        assert not thread.is_alive()


def test_two_threads_take_turns() -> None:
    inbox, running, most = Inbox(), [], []
    release = threading.Event()

    def slow() -> None:
        running.append(threading.get_ident())
        most.append(len(running))
        release.wait(30)
        running.pop()

    threads = [threading.Thread(target=inbox.process, args=(5,), daemon=True) for _ in range(2)]
    inbox.post(slow)
    threads[0].start()
    wait_for(lambda: running, what="the first runs its event")
    inbox.post(slow)
    threads[1].start()
    release.set()
    for thread in threads:
        thread.join(30)
    inbox.process(0)
    assert most == [1, 1]
