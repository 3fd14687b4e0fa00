"""Work of pyarrow and numpy on several cores at once: they let go of the interpreter while they copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")

# Below so many values, handing work to another thread takes longer than doing it.
ROWS_MIN = 50_000
_THREADS_MAX = 4


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="millpond-sides")


# The threads of a pool do not live on in a forked process.
os.register_at_fork(after_in_child=_pool.cache_clear)


def side_by_side(works: Sequence[Callable[[], T]], rows: int) -> list[T]:
    """The results of some works that each read so many rows; in turn when that is not worth a thread. The first is
    done by the caller; the others must not call this again, as they would wait for threads that wait for them."""
    if rows < ROWS_MIN or len(works) < 2 or (os.cpu_count() or 1) < 2:
        return [work() for work in works]
    others = [_pool().submit(work) for work in works[1:]]
    return [works[0](), *(other.result() for other in others)]
