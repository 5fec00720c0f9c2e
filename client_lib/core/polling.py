"""Polls the broker for a browsing receiver (shell; runs in the I/O thread).

The messages go into the receiver's buffer as if they had been delivered, so `fetch` needs no special case.  A request
that is open when the connection is lost is sent again on the next connection, from the same position.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future

from client_lib.addresses.browse import METHOD, Browser
from client_lib.addresses.scratch import start_request
from client_lib.core.channel_worker import ChannelWorker
from client_lib.core.subscription import Subscription
from client_lib.delivery import Delivery
from client_lib.errors import MessagingError, ReceiverError
from client_lib.steps import answer, refuse

LOGGER = logging.getLogger("client_lib")


class Poller:
    def __init__(self, worker: ChannelWorker, subscription: Subscription) -> None:
        self._worker, self._subscription = worker, subscription
        self._browser = Browser(subscription.queue)
        self._first: Future[None] = Future()

    def start(self) -> Future[None]:
        """Sends the first request; its messages are in the buffer when the future is done."""
        self._ask(self._room())
        return self._first

    def _room(self) -> int:
        return max(1, self._subscription.capacity) - self._subscription.available()

    def _ask(self, limit: int) -> None:
        start_request(self._worker.requests, METHOD, self._browser.request(limit)).add_done_callback(self._answered)

    def _answered(self, future: Future[bytes]) -> None:
        """Called once for each request; only one request is open at a time, so there is no second thread."""
        error = future.exception()
        try:
            messages = [] if error else self._browser.answered(future.result())
        except (MessagingError, ValueError, LookupError) as failure:
            error = failure
        if error is None:
            with self._worker.monitor:
                for message in messages:
                    # of no channel: settling it does nothing
                    message._delivery = Delivery(self._subscription, -1, 0)
                    self._subscription.arrived(message)
                self._worker.monitor.notify_all()
            answer(self._first, None)
            self._worker.requests.later(self._browser.pause, self._again)
        else:
            self._end(error)

    def _again(self) -> None:
        with self._worker.monitor:
            if self._subscription.error is not None:
                return
            room = self._room()
        if room <= 0:
            self._worker.requests.later(self._browser.pause, self._again)
            return
        try:
            self._ask(room)
        except MessagingError as error:  # the session has ended
            LOGGER.debug("browsing %s: %s", self._subscription.queue, error)

    def _end(self, error: BaseException) -> None:
        if not isinstance(error, MessagingError):
            error = ReceiverError(f"browsing {self._subscription.queue}: {error!r}")
        with self._worker.monitor:
            if self._subscription.error is None:
                self._subscription.error = error
            self._worker.monitor.notify_all()
        refuse(self._first, error)
