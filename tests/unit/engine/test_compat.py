"""Which blocks of a model file its digest looks at."""

import itertools

import pytest

from services.engine.compat import N_SAMPLES, SAMPLE_BYTES, sample_offsets


@pytest.mark.parametrize("size", [0, 1, SAMPLE_BYTES, 10 * SAMPLE_BYTES + 7])
def test_a_small_file_is_read_whole(size: int) -> None:
    offsets = sample_offsets(100, 100 + size)
    assert offsets == list(range(100, 100 + size, SAMPLE_BYTES))


@pytest.mark.parametrize("size", [10**8, 10**11])
def test_a_large_file_is_sampled_to_its_end(size: int) -> None:
    offsets = sample_offsets(100, size)
    assert len(offsets) == N_SAMPLES
    assert offsets[0] == 100
    assert offsets[-1] + SAMPLE_BYTES == size
    steps = {b - a for a, b in itertools.pairwise(offsets)}
    assert max(steps) - min(steps) <= 1
