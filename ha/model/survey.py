"""Asks all other brokers at once and collects the answers; used by promotion, the shrink rule and the finder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ha.model.environment import Answer, Environment, Json, Outcome

One = TypeVar("One")
Other = TypeVar("Other")


class Round:
    """One request to many brokers.  `done` gets the answers by address, exactly once: when all have answered, when
    `enough` returns True for an answer, or at the timeout; missing answers are then SILENT.  It is never called before
    the constructor has returned."""

    def __init__(
        self,
        env: Environment,
        addresses: Iterable[str],
        method: str,
        arguments: Json,
        timeout: float,
        done: Callable[[dict[str, Answer]], None],
        enough: Callable[[Answer], bool] = lambda answer: False,
        wait_for: Iterable[str] | None = None,
        judge: Callable[[str, Answer], Answer] = lambda address, answer: answer,
    ) -> None:
        """`judge` gives each answer as it counts (`refusals.py`)."""
        self._done = done
        self._enough = enough
        self._judge = judge
        self._finished = False
        self._answers = {address: Answer(Outcome.SILENT) for address in addresses}
        self._open = set(self._answers if wait_for is None else wait_for) & set(self._answers)
        self.started = env.now()
        for address in list(self._answers):
            env.request(address, method, arguments, timeout, self._receiver(address))
        env.after(timeout if self._open else 0.0, self._finish)

    @property
    def answers(self) -> dict[str, Answer]:
        """The answers so far; missing ones are SILENT."""
        return dict(self._answers)

    @property
    def over(self) -> bool:
        return self._finished

    def end(self) -> None:
        """Finish now, without waiting for the others."""
        self._finish()

    def cancel(self) -> None:
        self._finished = True

    def _receiver(self, address: str) -> Callable[[Answer], None]:
        def receive(answer: Answer) -> None:
            self._answers[address] = answer = self._judge(address, answer)
            self._open.discard(address)
            if not self._open or self._enough(answer):
                self._finish()

        return receive

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            self._done(dict(self._answers))


class Both(Generic[One, Other]):
    """Waits for two answers in any order; `done` gets both."""

    def __init__(self, done: Callable[[One, Other], None]) -> None:
        self._done = done
        self._one: list[One] = []
        self._other: list[Other] = []

    def first(self, answer: One) -> None:
        self._one.append(answer)
        self._try()

    def second(self, answer: Other) -> None:
        self._other.append(answer)
        self._try()

    def _try(self) -> None:
        if self._one and self._other:
            self._done(self._one[0], self._other[0])
