"""The random source behind our own samplers: what C++'s would give."""

import numpy as np
import pytest

from services.engine.llama.random_source import RandomSource

MT19937_10000TH = 4123659995
"""Of a generator seeded with 5489, by the C++ standard."""


def test_it_is_the_standards_generator() -> None:
    """A draw is two numbers, the first the lower bits; 54 bits of 64 are seen in a double."""
    source = RandomSource(5489)
    source.skip(4999)
    drawn = int(source.draw() * 2**64)
    assert drawn >> 32 << 32 == pytest.approx(MT19937_10000TH << 32, rel=1e-12)


def test_skipping_is_drawing() -> None:
    one, other = RandomSource(7), RandomSource(7)
    for _ in range(1000):
        one.draw()
    other.skip(1000)
    assert one.draw() == other.draw()
    assert one.n_draws == other.n_draws == 1001


def test_one_weight_takes_no_draw() -> None:
    source = RandomSource(1)
    assert source.pick(np.ones(1, dtype=np.float32)) == 0
    assert source.n_draws == 0


def test_weights_decide_and_need_not_sum_to_one() -> None:
    source = RandomSource(3)
    weights = np.array([1.0, 0.0, 7.0], dtype=np.float32)
    counts = np.bincount([source.pick(weights) for _ in range(4000)], minlength=3)
    assert counts[1] == 0
    assert counts[2] / counts.sum() == pytest.approx(7 / 8, abs=0.03)


def test_what_is_no_number_does_not_stop_it() -> None:
    with np.errstate(all="ignore"):
        assert RandomSource(3).pick(np.array([np.nan, np.nan], dtype=np.float32)) in (0, 1)
