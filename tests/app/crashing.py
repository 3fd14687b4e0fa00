"""Programs that are ended at a point, each time that they reach it: one Python, which forks for each of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

TIMES_MAX = 30
PROGRAM = """
import os, shutil, sys
import millpond as mp
from millpond import faults

made, times_max, body, *points = sys.argv[1:]
# Imported once, before the forks.
assert mp.App
for point in points:
    for count in range(1, int(times_max)):
        state = f"{made}-{point}-{count}"
        shutil.copytree(made, state)
        child = os.fork()
        if child == 0:
            faults._point, faults._left = point, count
            exec(body, {"mp": mp, "state": state})
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(point, state, code, sep="\\t", flush=True)
        if code != 137:
            break
"""


def ended_states(made: Path, body: str, points: Sequence[str]) -> Iterator[tuple[str, Path, bool]]:
    """For each point, and each time that `body` reaches it, a copy of the state directory `made` on which it was ended
    there; at last one on which it was not. `body` is Python that uses `mp` and `state`, and starts no Spark."""
    command = [sys.executable, "-c", PROGRAM, str(made), str(TIMES_MAX), body, *points]
    done = subprocess.run(command, timeout=300, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        point, state, code = line.split("\t")
        assert code in ("0", "137"), done.stderr
        yield point, Path(state), code == "137"
