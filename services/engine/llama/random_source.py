# pyright: basic
"""C++'s `std::mt19937` and what libstdc++ draws from it, bit for bit, with a count of draws."""

import numpy as np

_BELOW_ONE = float(np.nextafter(1.0, 0.0))


class RandomSource:
    """The generator behind llama.cpp's own choices. n_draws: values taken so far. seed: 32 bits."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937()
        self._bits._legacy_seeding(seed)
        self.n_draws = 0

    def draw(self) -> float:
        """`std::generate_canonical<double, 53>`: below 1."""
        low, high = self._bits.random_raw(2).tolist()
        self.n_draws += 1
        return min((low + (high << 32)) / 2**64, _BELOW_ONE)

    def skip(self, n: int) -> None:
        """Go on as if `n` values had been drawn."""
        if n:
            self._bits.random_raw(2 * n, output=False)
        self.n_draws += n

    def pick(self, weights: np.ndarray) -> int:
        """`std::discrete_distribution`: an index. Of one weight nothing is drawn. One at least."""
        if len(weights) < 2:
            return 0
        doubles = weights.astype(np.float64)
        sums = np.cumsum(doubles / np.cumsum(doubles)[-1])
        return min(int(np.searchsorted(sums, self.draw())), len(weights) - 1)
