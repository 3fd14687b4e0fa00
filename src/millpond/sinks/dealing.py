"""Messages without keys dealt out to the partitions of a topic, for several tasks to send.

Each partition gets its messages from one task, so that they stand in it in the order of the rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

# Added to messages: the number of the row, as text, and the partition.
ROW, PARTITION = "_mp_number", "_mp_partition"
# Fewer are sent by one task, to whatever partition Kafka's client likes.
ROWS_MIN = 100_000
# So many neighbours go to one partition: they are sent together.
RUN = 1000


def dealt(messages: pa.Table, partitions: int) -> Sequence[pa.Table]:
    """Parts of neighbouring rows; no partition gets messages of two parts."""
    count, rows = min(partitions, os.cpu_count() or 1), messages.num_rows
    numbers = pa.array(np.arange(rows)).cast(pa.string()).cast(pa.binary())
    numbered, size = messages.append_column(ROW, numbers), -(-rows // count)
    return [_sent_to(numbered.slice(n * size, size), np.arange(n, partitions, count)) for n in range(count)]


def _sent_to(part: pa.Table, partitions: np.ndarray) -> pa.Table:
    runs = np.arange(part.num_rows) // RUN
    return part.append_column(PARTITION, pa.array(partitions[runs % len(partitions)], pa.int32()))
