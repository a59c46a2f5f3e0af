"""Which rows of a batch go through which kernel of llama.cpp's CPU backend: decides sizes of batches."""

TILE_ROWS = 64
"""From so many rows on it attends in tiles: quicker per row, and with other results in the last bits."""
SMALL_ROWS = TILE_ROWS - 1
"""Most rows of a batch that it computes with the kernel of single tokens."""


def split(n_tokens: int, chunk: int) -> tuple[int, ...]:
    """`n_tokens` in chunks: full ones and a rest; no small rest behind a chunk that can share with it."""
    full, rest = divmod(n_tokens, chunk)
    if full and 0 < rest < TILE_ROWS and chunk + rest >= 2 * TILE_ROWS:
        half = (chunk + rest) // 2
        return (chunk,) * (full - 1) + (chunk + rest - half, half)
    return (chunk,) * full + ((rest,) if rest else ())
