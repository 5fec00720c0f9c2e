"""Who is woken, and that no wake-up is lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from client_lib.aio.monitor import ALL, LoopMonitor, WaitingLine


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 60), debug=True)

    return run


async def turn(times: int = 3) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def never() -> int:
    return 0


@in_loop
async def test_first_come_first_served() -> None:
    line = LoopMonitor().line(never)
    order: list[int] = []

    async def waiter(number: int) -> None:
        assert await line.wait()
        order.append(number)

    tasks = [asyncio.create_task(waiter(number)) for number in range(5)]
    await turn()
    line.wake(2)
    assert (len(line), line.going) == (3, 2)
    await turn()
    assert order == [0, 1] and line.going == 0 and line.occupied
    line.wake(7)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4] and not line.occupied


@in_loop
async def test_a_cancelled_task_passes_its_wake_up_on() -> None:
    line = LoopMonitor().line(never)
    first, second = (asyncio.create_task(line.wait()) for _ in range(2))
    await turn()
    line.wake(1)
    first.cancel()
    assert await asyncio.wait_for(second, 60) is True
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not line.occupied


@in_loop
async def test_a_wake_up_is_not_spent_on_a_task_that_is_cancelled_already() -> None:
    line = LoopMonitor().line(never)
    first, second = (asyncio.create_task(line.wait()) for _ in range(2))
    await turn()
    first.cancel()
    line.wake(1)
    assert await asyncio.wait_for(second, 60) is True
    assert not line.occupied


@in_loop
async def test_a_wake_up_is_not_spent_on_a_task_whose_time_is_up() -> None:
    line = LoopMonitor().line(never)
    assert await line.wait(0) is False
    assert await line.wait(0.001) is False
    impatient, patient = asyncio.create_task(line.wait(0.01)), asyncio.create_task(line.wait())
    await turn()
    while not impatient.done():
        await turn(1)
    line.wake(1)
    assert (await impatient, await patient) == (False, True)


@in_loop
async def test_woken_for_nothing_waits_on_at_the_front() -> None:
    line = LoopMonitor().line(never)
    order: list[str] = []

    async def waiter(name: str, rounds: int) -> None:
        for number in range(rounds):
            await line.wait(again=number > 0)
        order.append(name)

    tasks = [asyncio.create_task(waiter("first", 2)), asyncio.create_task(waiter("second", 1))]
    await turn()
    for _ in range(2):
        line.wake(1)
        await turn()
    assert order == ["first"]
    line.wake(1)
    await asyncio.gather(*tasks)
    assert order == ["first", "second"]


@in_loop
async def test_notify_all_wakes_as_many_as_may_go() -> None:
    monitor, may_go, asked = LoopMonitor(), {"a": 0, "b": 0}, []

    def line(name: str) -> WaitingLine:
        def answer() -> int:
            asked.append(name)
            return may_go[name]

        return monitor.line(answer)

    lines = {name: line(name) for name in may_go}
    tasks = {name: [asyncio.create_task(lines[name].wait()) for _ in range(50)] for name in may_go}
    await turn()
    may_go["a"] = 7
    monitor.notify_all()
    await turn()
    assert [task.done() for task in tasks["a"]] == [True] * 7 + [False] * 43
    assert not any(task.done() for task in tasks["b"])
    assert sorted(asked) == ["a", "b"], "each line is asked once, not each task"
    may_go["a"] = ALL
    monitor.notify_all()
    await asyncio.gather(*tasks["a"])
    asked.clear()
    monitor.notify_all()
    assert asked == ["b"], "a line in which no task waits is not asked"
    may_go["b"] = ALL
    monitor.notify_all()
    await asyncio.gather(*tasks["b"])


@in_loop
async def test_wait_for_holds_on_to_what_was_true_once() -> None:
    monitor, value = LoopMonitor(), [0]
    task = asyncio.create_task(monitor.wait_for(lambda: value[0] == 1))
    await turn()
    monitor.notify_all()
    await turn()
    assert not task.done()
    value[0] = 1
    monitor.notify_all()
    value[0] = 2
    assert await task is True
    assert await monitor.wait_for(lambda: value[0] == 1, 0.001) is False
    assert await monitor.wait_for(lambda: value[0] == 2, 0) is True


@pytest.mark.parametrize("seed", range(20))
def test_no_task_sleeps_next_to_a_full_buffer(seed: int) -> None:
    """Random takers, cancellations, time-outs and arrivals: whatever arrives is taken, once."""
    rng = random.Random(seed)

    async def story() -> None:
        line, buffer, taken = LoopMonitor().line(never), [], []

        async def take(timeout: float | None) -> None:
            again = False
            while not buffer:
                if not await line.wait(timeout, again) and not buffer:
                    return
                again = True
            taken.append(buffer.pop(0))

        tasks, arrived = [], 0
        for _ in range(400):
            what = rng.random()
            if what < 0.4:
                tasks.append(asyncio.create_task(take(rng.choice([None, None, 0.0005]))))
            elif what < 0.6 and tasks:
                rng.choice(tasks).cancel()
            elif what < 0.8:
                buffer.append(arrived)
                arrived += 1
                line.wake(1)
            else:
                await turn(rng.randrange(3))
                if rng.random() < 0.2:
                    await turn(6)
                    assert not (buffer and line.occupied), "somebody sleeps next to a message"
        while buffer:
            await take(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(taken) == list(range(arrived)) and not line.occupied

    asyncio.run(asyncio.wait_for(story(), 60))
