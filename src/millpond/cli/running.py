"""An app under way, as `run` and `demo` show it: watched by the view, ended by signals, failures told once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from millpond.cli.stopper import Stopper
from millpond.cli.views import View
from millpond.cli.watcher import Watcher
from millpond.errors import MillpondError, Problem

if TYPE_CHECKING:
    from millpond.runtime.app import App


@dataclass(frozen=True)
class Ended:
    """How an app ended: everything that failed, and the problems that the view has shown."""

    failures: list[MillpondError]
    told: set[Problem]


def watch(app: App, work: Callable[[], None], view: View, stopper: Stopper, told: Iterable[Problem]) -> Ended:
    """Do the work while the view shows the app, and stop the app."""
    raised: list[MillpondError] = []
    with Watcher(app.progress, view, told, stopper.excuses) as watcher:
        try:
            work()
        except MillpondError as error:
            raised.append(error)
        except Exception:
            app.stop()
            raise
        # An interrupt passes by this on purpose: whoever sends a second one wants no more waiting.
        app.stop()
    if stopper.failure is not None:
        raise stopper.failure
    failures = [f for f in dict.fromkeys([*raised, *app.failures]) if not all(map(stopper.excuses, f.problems))]
    return Ended(failures, watcher.told)


def leave_at_once(code: int, *, quiet: bool = False) -> NoReturn:
    """End without waiting for a batch: what was committed is safe, the rest is taken up again at the next start."""
    sys.stdout.flush()
    if not quiet:
        print("Stopped at once; the next start goes on from the last commit.", file=sys.stderr, flush=True)
    # Threads of Spark may wait for each other for long; the JVM ends when this process is gone.
    os._exit(code)
