"""Epochs of a flow that reads feed files: its checkpoint is begun anew at each start, so that nothing depends on what
Spark has written there and the state directory can be moved, and now and then while it runs, because Spark remembers
every feed file for ever.

The ledger's entry is the switch. Before it, feed files whose batches are done go: the old checkpoint never reads them
again. After it, the old checkpoint goes. A crash between any two steps leaves one epoch that is whole.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from millpond.contracts.source import Given
from millpond.contracts.table import Store
from millpond.faults import reach
from millpond.runtime.keeping.ledger import EPOCH, flow_entry

# Batches of one epoch: Spark's list of files is then at most about 2 MB, and is read and written whole at times.
BATCHES_MAX = 10_000
CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Epoch:
    """Spark counts the batches of each from 0; `first` is what its first one is to us."""

    number: int = 0
    first: int = 0

    @property
    def folder(self) -> str:
        """The name of its checkpoint."""
        return f"{CHECKPOINT}-{self.number}" if self.number else CHECKPOINT


def epoch_of(store: Store, flow_id: str) -> Epoch:
    """The epoch that a flow is in."""
    found = store.get(EPOCH + flow_id)
    return Epoch() if found is None else Epoch(found["number"], found["first"])


def is_over(store: Store, flow_id: str, epoch: Epoch) -> bool:
    """Whether it is time for the next one, because it is long."""
    return flow_entry(store, flow_id).batch + 1 - epoch.first >= BATCHES_MAX


def begin_anew(store: Store, flow_id: str, folder: Path, given: Given) -> Epoch:
    """The next epoch, with an empty checkpoint; called while no query of the flow runs."""
    done = flow_entry(store, flow_id).batch + 1
    epoch = Epoch(epoch_of(store, flow_id).number + 1, done)
    given.forget(done)
    reach("epoch.forgotten")
    with store.begin() as tx:
        tx.put(EPOCH + flow_id, asdict(epoch))
        tx.commit()
    reach("epoch.begun")
    clean_up(folder, epoch)
    reach("epoch.cleaned")
    return epoch


def is_behind(folder: Path, epoch: Epoch) -> bool:
    """Whether there is a checkpoint of a later epoch: the tables are older than it."""
    numbers = [found.name.removeprefix(f"{CHECKPOINT}-") for found in folder.glob(f"{CHECKPOINT}-*")]
    return any(number.isdigit() and int(number) > epoch.number for number in numbers)


def clean_up(folder: Path, epoch: Epoch) -> None:
    """Remove checkpoints of epochs that are over."""
    for found in folder.glob(f"{CHECKPOINT}*"):
        if found.name != epoch.folder:
            shutil.rmtree(found, ignore_errors=True)
