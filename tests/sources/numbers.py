"""Records that are no more than a number."""


def lines(*numbers: int) -> bytes:
    """JSON lines, one for each number."""
    return b"".join(b'{"a": %d}\n' % n for n in numbers)
