"""Rows that are on the driver into one file: the same texts and values that Spark's writers give."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millpond.sinks.csv_text import csv_blocks
from millpond.sinks.json_text import json_blocks


def write_rows(rows: pa.Table, folder: Path, format_: str) -> tuple[int, list[Path]]:
    """Write rows into a folder that does not exist; returns their number and the file that holds them, if any."""
    if not rows.num_rows:
        return 0, []
    folder.mkdir(parents=True)
    file = folder / f"part-00000.{format_}"
    if format_ == "parquet":
        # Slow to import, and most sinks write text.
        import pyarrow.parquet as pq

        pq.write_table(rows, file)
    else:
        with file.open("wb") as data:
            data.writelines(csv_blocks(rows) if format_ == "csv" else json_blocks(rows))
    return rows.num_rows, [file]
