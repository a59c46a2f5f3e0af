"""Ranges of numbers as GBNF. Numbers are written without exponents here, with at most MAX_DIGITS
digits before and after the point (more before it where a bound has more)."""

from dataclasses import dataclass
from decimal import Decimal

from services.engine.grammar.rules import either

MAX_DIGITS = 16
MAX_BOUND_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Bounds:
    """None: no bound. is_above, is_below: the bound itself is not allowed."""

    low: Decimal | None = None
    high: Decimal | None = None
    is_above: bool = False
    is_below: bool = False

    def allow(self, value: object) -> bool:
        """Whether a value is no number, or one within the bounds."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        number = Decimal(repr(value))
        is_high = (
            self.low is None or number > self.low or (number == self.low and not self.is_above)
        )
        is_low = (
            self.high is None or number < self.high or (number == self.high and not self.is_below)
        )
        return is_high and is_low

    @property
    def is_open(self) -> bool:
        return self.low is None and self.high is None


def integers(bounds: Bounds) -> str | None:
    """Whole numbers within bounds, as one element; None: there is none."""
    low, high = _whole_low(bounds), _whole_high(bounds)
    options: list[str] = []
    if low is None or low < 0:
        smallest = 1 if high is None or high >= 0 else -high
        options += [f'"-" {part}' for part in _naturals(smallest, None if low is None else -low)]
    if high is None or high >= 0:
        options += _naturals(max(low or 0, 0), high)
    return either(options) if options else None


def decimals(bounds: Bounds) -> str | None:
    """Numbers within bounds, as one element; None: there is none."""
    options: list[str] = []
    low, high = bounds.low, bounds.high
    if low is None or low < 0:
        nothing_above = high is None or high >= 0
        size = _Sizes(
            Decimal(0) if nothing_above or high is None else -high,
            None if low is None else -low,
            nothing_above or bounds.is_below,
            bounds.is_above,
        )
        options += [f'"-" {part}' for part in size.options()]
    if high is None or high >= 0:
        starts_below = low is None or low < 0
        size = _Sizes(
            Decimal(0) if starts_below or low is None else low,
            high,
            not starts_below and bounds.is_above,
            bounds.is_below,
        )
        options += size.options()
    return either(options) if options else None


def _whole_low(bounds: Bounds) -> int | None:
    if bounds.low is None:
        return None
    floor = int(bounds.low.to_integral_value("ROUND_FLOOR"))
    return floor if floor == bounds.low and not bounds.is_above else floor + 1


def _whole_high(bounds: Bounds) -> int | None:
    if bounds.high is None:
        return None
    ceiling = int(bounds.high.to_integral_value("ROUND_CEILING"))
    return ceiling if ceiling == bounds.high and not bounds.is_below else ceiling - 1


def _naturals(low: int, high: int | None) -> list[str]:
    """Alternatives for low ≤ n ≤ high, both ≥ 0."""
    options: list[str] = []
    n_last = max(MAX_DIGITS, len(str(low))) if high is None else len(str(high))
    for n in range(len(str(low)), n_last + 1):
        smallest, largest = max(low, 10 ** (n - 1) if n > 1 else 0), 10**n - 1
        if high is None and smallest == 10 ** (n - 1):
            options.append(f"[1-9] {_digits(n - 1, n_last - 1)}")
            break
        largest = largest if high is None else min(high, largest)
        if smallest <= largest:
            options.append(_same_length(str(smallest), str(largest)))
    return options


def _same_length(low: str, high: str) -> str:
    """Digits from low to high, which are equally many."""
    if low == high:
        return f'"{low}"'
    if set(low) == {"0"} and set(high) == {"9"}:
        return _digits(len(low), len(low))
    if low[0] == high[0]:
        return f'"{low[0]}" {_same_length(low[1:], high[1:])}'
    if len(low) == 1:
        return f"[{low}-{high}]"
    first, last = int(low[0]), int(high[0])
    options: list[str] = []
    if set(low[1:]) != {"0"}:
        options.append(f'"{first}" {_same_length(low[1:], "9" * len(low[1:]))}')
        first += 1
    ending = []
    if set(high[1:]) != {"9"}:
        ending = [f'"{last}" {_same_length("0" * len(high[1:]), high[1:])}']
        last -= 1
    if first <= last:
        options.append(f"[{first}-{last}] {_digits(len(low) - 1, len(low) - 1)}")
    return either(options + ending)


def _digits(n_min: int, n_max: int) -> str:
    return f"[0-9]{{{n_min},{n_max}}}" if n_min != n_max else f"[0-9]{{{n_min}}}"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Numbers ≥ 0 from low to high (None: no end)."""

    low: Decimal
    high: Decimal | None
    is_above: bool
    is_below: bool

    def options(self) -> list[str]:
        low, low_digits = _split(self.low)
        if self.high is None:
            first = self._at(low, _Fraction(low_digits, None, self.is_above, False))
            return [*first, *(f"{n} {_ANY_FRACTION}" for n in _naturals(low + 1, None))]
        high, high_digits = _split(self.high)
        if low > high:
            return []
        if low == high:
            both = _Fraction(low_digits, high_digits, self.is_above, self.is_below)
            return self._at(low, both)
        options = self._at(low, _Fraction(low_digits, None, self.is_above, False))
        if low + 1 <= high - 1:
            options += [f"{n} {_ANY_FRACTION}" for n in _naturals(low + 1, high - 1)]
        return options + self._at(high, _Fraction("", high_digits, False, self.is_below))

    def _at(self, whole: int, fraction: "_Fraction") -> list[str]:
        """The numbers with this whole part."""
        if not fraction.options():
            return [f'"{whole}"'] if fraction.can_be_empty else []
        after = f'("." {either(fraction.options())})'
        return [f'"{whole}" {after}' + ("?" if fraction.can_be_empty else "")]


_ANY_FRACTION = f'("." [0-9]{{1,{MAX_DIGITS}}})?'


@dataclass(frozen=True, slots=True)
class _Fraction:
    """Digits after the point, from low to high (None: no end); both without zeros at the end."""

    low: str
    high: str | None
    is_above: bool
    is_below: bool

    @property
    def can_be_empty(self) -> bool:
        return not self.low and not self.is_above and not (self.high == "" and self.is_below)

    def options(self) -> list[str]:
        """Alternatives of at least one digit."""
        if self.high is None and not self.low:
            any_digits = f"[0-9]{{1,{MAX_DIGITS}}}"
            above_zero = f'"0"{{0,{MAX_DIGITS - 1}}} [1-9] [0-9]{{0,{MAX_DIGITS - 1}}}'
            return [above_zero if self.is_above else any_digits]
        if self.high == "":
            is_zero = not self.low and not self.is_above and not self.is_below
            return [f'"0"{{1,{MAX_DIGITS}}}'] if is_zero else []
        first = int(self.low[:1] or "0")
        last = int(self.high[0]) if self.high else 9
        if first == last and self.high:
            inner = _Fraction(self.low[1:], self.high[1:], self.is_above, self.is_below)
            return inner.after(first)
        return self._apart(first, last)

    def _apart(self, first: int, last: int) -> list[str]:
        options: list[str] = []
        if first <= last:
            options += _Fraction(self.low[1:], None, self.is_above, False).after(first)
        top = last - 1 if self.high else last
        if first + 1 <= top:
            options.append(f"[{first + 1}-{top}] [0-9]{{0,{MAX_DIGITS - 1}}}")
        if self.high and first < last:
            options += _Fraction("", self.high[1:], False, self.is_below).after(last)
        return options

    def after(self, digit: int) -> list[str]:
        """These digits behind another one."""
        options = self.options()
        if not options:
            return [f'"{digit}"'] if self.can_be_empty else []
        return [f'"{digit}" ({" | ".join(options)})' + ("?" if self.can_be_empty else "")]


def _split(number: Decimal) -> tuple[int, str]:
    """The whole part, and the digits after the point without zeros at the end."""
    whole, _, digits = f"{number:f}".partition(".")
    return int(whole), digits.rstrip("0")
