"""Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
import threading

import pytest

from millpond.cli.stopper import Stopper


def test_the_first_signal_asks_from_another_thread() -> None:
    asked: list[threading.Thread] = []
    done = threading.Event()

    def stop() -> None:
        asked.append(threading.current_thread())
        done.set()

    with Stopper() as stopper:
        stopper.on_first(stop)
        signal.raise_signal(signal.SIGTERM)
        assert done.wait(10)
    assert stopper.received is signal.SIGTERM
    assert asked[0] is not threading.main_thread()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_interrupts(number: signal.Signals, code: int) -> None:
    with Stopper() as stopper:
        stopper.on_first(lambda: None)
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert stopper.exit_code == code


def test_before_there_is_something_to_stop_a_signal_interrupts() -> None:
    with Stopper(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_a_stop_that_fails_is_remembered() -> None:
    failed = threading.Event()

    def stop() -> None:
        failed.set()
        raise LookupError("no way to stop")

    with Stopper() as stopper:
        stopper.on_first(stop)
        signal.raise_signal(signal.SIGINT)
        assert failed.wait(10)
        for thread in threading.enumerate():
            if thread.name == "stopper":
                thread.join(10)
    assert isinstance(stopper.failure, LookupError)


def test_signals_go_back_to_whom_they_belonged() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stopper():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
