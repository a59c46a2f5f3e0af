"""A leaky bucket in one number: when all that was poured in will have leaked out. Pure.

A limit of N a minute holds N at once and then lets N leak out per minute, evenly: there is no minute
that begins, and no rush at its beginning. In no 60 seconds are there more than 2 N, on average never
more than N. This is the generic cell rate algorithm (ITU-T I.371), also known as a token bucket.

Times are Unix nanoseconds, whole: nothing is lost to rounding. `until_ns` is such a number, 0 for a
bucket that was never used.
"""

MINUTE_NS = 60_000_000_000
MAX_DEBT_NS = 60 * MINUTE_NS
"""What may be poured in over the rim, as by an answer that was longer than promised, in time to leak."""


def poured(until_ns: int, limit: int, n: int, now_ns: int) -> int:
    """The bucket with `n` more, or fewer where that is negative. limit: per minute, ≥ 1."""
    total = max(until_ns, now_ns) + n * MINUTE_NS // limit
    return min(total, now_ns + MINUTE_NS + MAX_DEBT_NS)


def wait_ns(until_ns: int, limit: int, n: int, now_ns: int) -> int:
    """How long until `n` more fit in; 0 for at once. More than `limit` never do: see `fits_ever`."""
    return max(0, poured(until_ns, limit, n, now_ns) - now_ns - MINUTE_NS)


def fits_ever(limit: int, n: int) -> bool:
    """Whether `n` fit into an empty bucket."""
    return n <= limit


def remaining(until_ns: int, limit: int, now_ns: int) -> int:
    """How many fit in now."""
    free_ns = MINUTE_NS - max(0, until_ns - now_ns)
    return max(0, free_ns * limit // MINUTE_NS)


def reset_ns(until_ns: int, now_ns: int) -> int:
    """How long until the bucket is empty, so that the whole limit is free."""
    return max(0, until_ns - now_ns)
