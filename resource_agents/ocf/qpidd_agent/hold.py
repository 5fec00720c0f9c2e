"""A held monitor: waits on the process, its beats and its port until there is something to report.  Shell.

`monitor.py` has the reasons, `watch.py` the decisions.
"""

import select
import time

from qpidd_agent.absence import gone
from qpidd_agent.ear import Ear, Question
from qpidd_agent.marker import SCORE_WAITS, Before, quiet
from qpidd_agent.ocf import OCF_RUNNING_PROMOTED, Operation, log
from qpidd_agent.parameters import Parameters
from qpidd_agent.process import Process, crashed
from qpidd_agent.score import Standing, code
from qpidd_agent.tool import write_score
from qpidd_agent.watch import Watch


class Hold:
    """One held monitor."""

    def __init__(
        self, parameters: Parameters, operation: Operation, process: Process, before: Before, silence: float
    ) -> None:
        """`silence`: how long a working broker may be silent, in seconds.  Raises `OSError`."""
        self._parameters = parameters
        self._operation = operation
        self._process = process
        self._found = before.found
        self._promoted = before.found == OCF_RUNNING_PROMOTED
        self._quiet_until = time.monotonic() + quiet(operation, SCORE_WAITS)
        self._watch = Watch(time.monotonic(), operation.half, silence)
        self._standing = Standing(last=before.last)
        self._silence_told = False
        self._written: str | None = None
        """The score that we tried to write; None: not yet.  The next monitor tries again."""
        self._ear = Ear(operation.path("notify"), process)
        self._question: Question | None = None
        self._may_ask = True
        """The port is queried once in each silence."""
        self._poll = select.poll()
        self._poll.register(process.descriptor, select.POLLIN)
        self._poll.register(self._ear.descriptor, select.POLLIN)

    def run(self) -> int:
        try:
            while True:
                answer = self._turn()
                if answer is not None:
                    return answer
        finally:
            self._ear.close()

    def _turn(self) -> "int | None":
        """Sleep until an event or a deadline.  Returns the exit code if the monitor ends."""
        planned = self._watch.sleep(time.monotonic())
        ready = {descriptor for descriptor, _ in self._poll.poll(planned * 1000)}
        now = time.monotonic()
        self._watch.woke(now, planned)
        if self._process.descriptor in ready:
            return self._end_dead(crashed(self._parameters) or "the broker has ended by itself; its log says why")
        if self._ear.descriptor in ready:
            self._hear(now)
        if self._question is not None and self._question.descriptor in ready:
            self._answered(now)
        return self._judge(now)

    def _hear(self, now: float) -> None:
        for values in self._ear.hear():
            self._standing = self._standing.told(values)
            self._signed(now)

    def _signed(self, now: float) -> None:
        self._watch.sign(now)
        self._may_ask = True
        self._end_question()

    def _judge(self, now: float) -> "int | None":
        self._watch.patient = not self._promoted or self._standing.last
        if self._watch.hangs(now) or self._replaceable(now):
            return self._end_hung()
        if self._watch.silent(now):
            self._silent_now()
        elif self._standing.state:
            self._silence_told = False
            self._write(self._standing.score)
            if code(self._standing.state) != self._found:
                log("info", f"process {self._process.pid} is {self._standing.state} now")
                return code(self._standing.state)
        if self._watch.late(now) and self._may_ask:
            self._ask()
        return self._found if self._watch.over(now) else None

    def _replaceable(self, now: float) -> bool:
        """True for a hung backup, if nothing is lost with it.  What it has said meanwhile counts."""
        if self._promoted or not self._watch.ask_others(now):
            return False
        from qpidd_agent.others import primary_elsewhere

        if not primary_elsewhere(self._parameters):
            return False
        now = time.monotonic()
        self._hear(now)
        return self._watch.silent(now)

    def _silent_now(self) -> None:
        """Delete the score of a hanging backup, so that it is not promoted; a primary keeps its score, since Pacemaker
        would demote it."""
        if not self._silence_told:
            self._silence_told = True
            log("warning", f"process {self._process.pid} is silent{', and is the last copy' if self.last else ''}")
        if not self._promoted:
            self._write("")

    @property
    def last(self) -> bool:
        """True if, by its last report, the broker is the only one that holds some messages."""
        return self._standing.last

    def _end_hung(self) -> int:
        role = "promoted" if self._promoted else "unpromoted"
        reason = f"process {self._process.pid} ({role}) hangs: neither a beat nor an answer"
        self._process.kill(reason)
        return self._end_dead(f"{reason}; it was killed")

    def _end_dead(self, reason: str) -> int:
        return gone(self._parameters, self._operation, self._promoted, reason)

    def _write(self, score: str) -> None:
        if score != self._written and time.monotonic() >= self._quiet_until:
            self._written = score
            write_score(self._operation, score)

    # ---- the second sign

    def _ask(self) -> None:
        self._may_ask = False
        self._question = Question(self._parameters)
        self._poll.register(self._question.descriptor, select.POLLIN | select.POLLOUT)

    def _answered(self, now: float) -> None:
        assert self._question is not None
        answer = self._question.look()
        if answer is None:
            self._poll.modify(self._question.descriptor, select.POLLIN)
            return
        self._end_question()
        if answer:
            self._signed(now)

    def _end_question(self) -> None:
        if self._question is not None:
            self._poll.unregister(self._question.descriptor)
            self._question.close()
            self._question = None
