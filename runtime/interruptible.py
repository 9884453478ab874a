# SPDX-License-Identifier: Apache-2.0
"""Calls that signals reach: Ctrl-C ends a run at once, and not when it is done.

Python handles signals on the main thread, between its own instructions; a thread that is in C code
for seconds hears nothing meanwhile. So what may take long runs on a thread of its own, and the main
thread waits, which signals do interrupt. If a handler raises, the call is cancelled and waited for,
since it uses memory of the caller's; if none does, it goes on. What is known to be quick is called
as it is: the change of threads costs some ten microseconds. No handler is installed for all this.
"""

import _thread
import threading
import time
from collections.abc import Callable, Sequence

_QUICK_SECONDS = 0.005
_GROWTH = 2
_ASK_SECONDS = 0.05


class QuickCalls:
    """Which calls are known to be quick, by the extents of their arrays: these decide how long a
    run takes, since no size in a model depends on values.
    """

    def __init__(self) -> None:
        self._known: tuple[int, ...] | None = None

    def include(self, extents: Sequence[int]) -> bool:
        """Whether no extent is much greater than in a call that was quick."""
        known = self._known
        return known is not None and all(n <= _GROWTH * k for n, k in zip(extents, known))

    def note(self, extents: Sequence[int], seconds: float) -> bool:
        """Learn what a call took; returns whether that was quick."""
        if seconds > _QUICK_SECONDS:
            return False
        self._known = tuple(extents)
        return True


def on_main_thread() -> bool:
    """Whether this is the thread that handles signals."""
    return _thread.get_ident() == threading.main_thread().ident


def interruptibly(call: Callable[[], None], cancel: Callable[[], None]) -> float:
    """Make a call that signals interrupt; returns the seconds that it took.

    What a handler raises is raised here, after ``cancel``, which is called until the call has
    ended: from the main thread, while the call is on another one. Other threads than the main one
    hear no signals, and make the call themselves.
    """
    start = time.perf_counter()
    if on_main_thread():
        _Job(call).wait(cancel)
    else:
        call()
    return time.perf_counter() - start


class _Job:
    """A call on another thread. Whoever takes ``claim`` decides whether it is made at all."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._claim = _thread.allocate_lock()
        self._done = _thread.allocate_lock()
        self._done.acquire()

    def _run(self) -> None:
        if not self._claim.acquire(False):
            return
        try:
            self._call()
        except BaseException as error:  # raised again by who waits
            self._error = error
        finally:
            self._done.release()

    def wait(self, cancel: Callable[[], None]) -> None:
        """Start the call, and wait until it is done."""
        try:
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # the system grants no more threads
                self._run()
            self._done.acquire()
        except BaseException:
            if not self._claim.acquire(False):
                self._end(cancel)
            raise
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _end(self, cancel: Callable[[], None]) -> None:
        """Cancel a call that has begun, and wait for its end, however often signals come."""
        while True:
            try:
                cancel()
                if self._done.acquire(timeout=_ASK_SECONDS):
                    return
            except BaseException:  # the first one is raised when the call has ended
                continue
