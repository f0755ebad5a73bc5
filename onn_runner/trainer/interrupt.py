"""StopRequest: Ctrl-C and SIGTERM as a flag that training looks at after every step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Set once, by a signal or by `request`; never cleared."""

    reason: str = ""

    @property
    def requested(self) -> bool:
        return bool(self.reason)

    def request(self, reason: str) -> None:
        self.reason = self.reason or reason

    @contextmanager
    def install(self) -> Iterator[StopRequest]:
        """Catch SIGINT and SIGTERM in this block, in the main thread; a second Ctrl-C stops at once."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def catch(number: int, frame: FrameType | None) -> None:
            if self.requested and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.request("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)

        for number in before:
            signal.signal(number, catch)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
