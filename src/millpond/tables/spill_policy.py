"""When and what a memory table spills: the oldest rows first, down to half of the limit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.tables.chunks import Chunks
from millpond.tables.heap import Version
from millpond.tables.spill_files import SpillFile, SpillFolder

# A file is verified as a whole, so it should not be large; small ones are merged up to this size.
_FILE_BYTES = 64 * 1024 * 1024
# The index cannot spill. It counts towards the limit, but this share is always for rows: otherwise an index larger than
# the limit would make every commit write a file.
_ROWS_SHARE = 4


@dataclass(frozen=True)
class Spill:
    """The memory limit of a table, and the folder for the rest."""

    folder: SpillFolder
    bytes_max: int

    def fitted(self, version: Version) -> Version:
        """The version with as many rows in files as the limit requires; MP805 if they cannot be written."""
        chunks = version.chunks
        index = version.nbytes - chunks.nbytes
        rows_max = max(self.bytes_max - index, self.bytes_max // _ROWS_SHARE)
        if chunks.nbytes <= rows_max:
            return version
        return replace(version, chunks=self._shrunk(chunks, rows_max // 2))

    def filtered(self, chunks: Chunks, mask: npt.NDArray[np.bool_]) -> Chunks:
        """The rows where the mask is true, file by file: files that lose no row are not rewritten."""
        files: list[SpillFile] = []
        waiting: list[pa.RecordBatch] = []
        for number, file in enumerate(chunks.files):
            start, end = int(chunks.offsets[number]), int(chunks.offsets[number + 1])
            if mask[start:end].all():
                files += [*self._written(waiting), file]
                waiting = []
                continue
            file.check()
            waiting.append(file.batch.filter(pa.array(mask[start:end])))
            if sum(b.nbytes for b in waiting) >= _FILE_BYTES:
                files += self._written(waiting)
                waiting = []
        files += self._written(waiting)
        first = int(chunks.offsets[len(chunks.files)])
        rest = replace(chunks, batches=chunks.batches[len(chunks.files) :], files=()).filtered(mask[first:])
        return replace(rest, batches=(*(f.batch for f in files), *rest.batches), files=tuple(files))

    def _shrunk(self, chunks: Chunks, bytes_left: int) -> Chunks:
        files, batches = list(chunks.files), list(chunks.batches[len(chunks.files) :])
        going: list[pa.RecordBatch] = []
        while batches and sum(b.nbytes for b in batches) > bytes_left:
            going.append(batches.pop(0))
        # Small files are rewritten together with the following rows, so that their number stays small.
        while files and files[-1].batch.nbytes <= min(2 * sum(b.nbytes for b in going), _FILE_BYTES // 2):
            files[-1].check()
            going.insert(0, files.pop().batch)
        files += self._written(going)
        return replace(chunks, batches=(*(f.batch for f in files), *batches), files=tuple(files))

    def _written(self, batches: list[pa.RecordBatch]) -> list[SpillFile]:
        batches = [b for b in batches if b.num_rows]
        if not batches:
            return []
        size = sum(b.nbytes for b in batches)
        if size <= _FILE_BYTES:
            return [self.folder.write(pa.concat_batches(batches))]
        return [self.folder.write(piece) for batch in batches for piece in _pieces(batch)]


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Slices of about the size of a file."""
    count = -(-batch.nbytes // _FILE_BYTES)
    rows = -(-batch.num_rows // max(count, 1))
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]
