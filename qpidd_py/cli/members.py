"""Several brokers are asked at the same time: a dead one costs its own time limit, and delays no answer.      Shell."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
SPARE = 0.5
"""Seconds after the limit until a broker counts as late, though its own time limit should have ended the question."""


def of_each(addresses: Sequence[str], ask: Callable[[str], T], seconds: float) -> list[tuple[str, T | Exception]]:
    """What `ask` answers or raises for each address, in their order; `seconds`: what it may take, 0 = for ever."""
    import threading  # not needed by most calls of a tool

    answers: dict[str, T | Exception] = {}

    def work(address: str) -> None:
        try:
            answers[address] = ask(address)
        except Exception as error:
            answers[address] = error

    threads = [threading.Thread(target=work, args=(address,), daemon=True) for address in addresses]
    for thread in threads:
        thread.start()
    late = TimeoutError(f"no answer within {seconds:g} s")
    for thread in threads:
        thread.join(seconds + SPARE if seconds else None)
    return [(address, answers.get(address, late)) for address in addresses]
