"""Follows a grammar one byte at a time.

All stacks of rules that the text so far may have led to are one `State`; states, their stacks and
the steps between them are made when first needed and kept, so that common paths cost a dictionary
look-up per byte and ambiguity does not multiply. Work is counted and bounded. One thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.engine.grammar.charsets import MAX_CODE_POINT, CharSet, has, overlaps
from services.engine.grammar.errors import GrammarTooComplex
from services.engine.grammar.program import (
    CHARS,
    END,
    NOT_TOKEN,
    REPEAT,
    RULE,
    TOKEN,
    UNBOUNDED,
    Program,
    Repeat,
)

EMPTY = 0
"""The stack with nothing left to do: the text may end here."""
MAX_STACKS = 200_000
MAX_STATES = 50_000
START_WORK = 60_000
SHORT_BYTES = 16
"""See Automaton.shortened: most tokens are no longer."""
ASCII_END = 0x80
SURROGATES = (0xD800, 0xDFFF)
SMALLEST = {(0, 2): 0x800, (0, 3): 0x10000}
"""The smallest character after 0xE0 and 0xF0: those below are written with fewer bytes."""


@dataclass(frozen=True, slots=True)
class Key:
    """What makes states equal. stacks: ascending. begun, n_missing: a character whose first bytes
    have come: its bits so far, and how many bytes are to follow."""

    stacks: tuple[int, ...]
    begun: int = 0
    n_missing: int = 0


class State:
    """Where a text has got to. steps: by next byte, None where the grammar does not allow it."""

    __slots__ = ("can_end", "key", "loops", "steps")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.can_end = EMPTY in key.stacks and not key.n_missing
        self.steps: dict[int, State | None] = {}
        self.loops: bytes | None = None
        """See Automaton.loops; None: not known yet."""


class Automaton:
    """A program in use. work: how many stacks have been looked at. limit: where work must end;
    beyond it every call raises GrammarTooComplex."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.has_tokens = program.has_tokens
        self.work = 0
        self.limit = START_WORK
        self._kinds = list(program.kinds)
        self._values = list(program.values)
        self._nexts = list(program.nexts)
        self._repeats = list(program.repeats)
        self._ascii = [_ascii_bits(chars) for chars in program.sets]
        self._counted: dict[tuple[Repeat, int], int] = {}
        self._tops = [END]
        self._rests = [EMPTY]
        self._stacks: dict[tuple[int, int], int] = {}
        self._short = {EMPTY: EMPTY}
        self._states: dict[Key, State] = {}
        self._after: dict[tuple[int, ...], State | None] = {}
        self.start = self._begin()

    @property
    def is_full(self) -> bool:
        """Whether so much has been kept that a new automaton should take over (`adopt`)."""
        return len(self._tops) > MAX_STACKS or len(self._states) > MAX_STATES

    def step(self, state: State, byte: int) -> State | None:
        """The state after one more byte; None if the grammar does not allow it.

        Raises GrammarTooComplex.
        """
        try:
            return state.steps[byte]
        except KeyError:
            state.steps[byte] = found = self._step(state, byte)
            return found

    def feed(self, state: State | None, data: bytes) -> State | None:
        """The state after some bytes. Raises GrammarTooComplex."""
        for byte in data:
            if state is None:
                return None
            state = self.step(state, byte)
        return state

    def step_token(self, state: State, token: int) -> State | None:
        """The state after a token that the grammar names as such. Raises GrammarTooComplex."""
        if state.key.n_missing:
            return None
        seeds = tuple(
            self._popped(stack) for stack in state.key.stacks if self._names(stack, token)
        )
        return self._closed(seeds)

    def named(self, state: State) -> tuple[set[int], set[int] | None]:
        """The tokens that the grammar names for what comes next; and those that it excludes where it
        takes any other (None: it does not)."""
        wanted: set[int] = set()
        excluded: list[set[int]] = []
        for stack in state.key.stacks if not state.key.n_missing else ():
            if stack == EMPTY:
                continue
            top = self._tops[stack]
            if self._kinds[top] == TOKEN:
                wanted.add(self._values[top])
            elif self._kinds[top] == NOT_TOKEN:
                excluded.append({self._values[top]})
        return wanted, set.intersection(*excluded) if excluded else None

    def union(self, first: State, second: State) -> State:
        """The state of both; a character that has only begun gives way."""
        if first.key.n_missing:
            return second
        return self._state(Key(tuple(sorted({*first.key.stacks, *second.key.stacks}))))

    def loops(self, state: State) -> bytes:
        """256 flags: bytes after which the state is the same; for those from 0x80 on, whether all
        of their characters lead back. Raises GrammarTooComplex."""
        if state.loops is None:
            flags = bytes(self.step(state, byte) is state for byte in range(ASCII_END))
            state.loops = flags + bytes([self._loops_beyond_ascii(state)]) * ASCII_END
        return state.loops

    def adopt(self, state: State, owner: "Automaton") -> State:
        """The state of another automaton of the same program, as one of this one."""
        stacks = tuple(sorted(self._adopt_stack(owner, stack) for stack in state.key.stacks))
        return self._state(Key(stacks, state.key.begun, state.key.n_missing))

    def shortened(self, state: State) -> State:
        """A state that goes on alike for the next SHORT_BYTES bytes, and that more states share:
        what is left of a long count no longer matters."""
        key = state.key
        stacks = tuple(sorted({self._shortened_stack(stack) for stack in key.stacks}))
        return self._state(Key(stacks, key.begun, key.n_missing))

    # -- steps

    def _begin(self) -> State:
        starts = self.program.alternatives[self.program.root]
        seeds = (EMPTY if start == END else self._stack(start, EMPTY) for start in starts)
        return self._closed(tuple(seeds)) or self._state(Key(()))

    def _step(self, state: State, byte: int) -> State | None:
        if state.key.n_missing:
            return self._continue_character(state, byte)
        if byte < ASCII_END:
            return self._closed(self._seeds_ascii(state, byte))
        return self._begin_character(state, byte)

    def _begin_character(self, state: State, byte: int) -> State | None:
        if 0xC2 <= byte < 0xE0:
            return self._character(state.key.stacks, byte & 0x1F, 1)
        if 0xE0 <= byte < 0xF0:
            return self._character(state.key.stacks, byte & 0x0F, 2)
        if 0xF0 <= byte < 0xF5:
            return self._character(state.key.stacks, byte & 0x07, 3)
        return None

    def _continue_character(self, state: State, byte: int) -> State | None:
        if byte >> 6 != 0b10:
            return None
        value = state.key.begun << 6 | byte & 0x3F
        smallest = SMALLEST.get((state.key.begun, state.key.n_missing), 0)
        if value < smallest >> 6 * (state.key.n_missing - 1):
            return None
        if state.key.n_missing > 1:
            return self._character(state.key.stacks, value, state.key.n_missing - 1)
        return self._closed(self._seeds(state, value))

    def _character(self, stacks: tuple[int, ...], begun: int, n_missing: int) -> State | None:
        """Inside a character, if any that begins so is allowed."""
        shift = 6 * n_missing
        low, high = begun << shift, (begun + 1 << shift) - 1
        low = max(low, SMALLEST.get((begun, n_missing), 0))
        if SURROGATES[0] <= low and high <= SURROGATES[1]:
            return None
        left = tuple(s for s in stacks if self._can_begin(s, low, high))
        return self._state(Key(left, begun, n_missing)) if left else None

    def _can_begin(self, stack: int, low: int, high: int) -> bool:
        top = self._tops[stack]
        if stack == EMPTY or self._kinds[top] != CHARS:
            return False
        return overlaps(self.program.sets[self._values[top]], low, high)

    def _seeds_ascii(self, state: State, byte: int) -> tuple[int, ...]:
        kinds, values, tops, bits = self._kinds, self._values, self._tops, self._ascii
        self.work += len(state.key.stacks)
        return tuple(
            self._popped(stack)
            for stack in state.key.stacks
            if stack and kinds[tops[stack]] == CHARS and bits[values[tops[stack]]] >> byte & 1
        )

    def _seeds(self, state: State, code_point: int) -> tuple[int, ...]:
        kinds, values, tops, sets = self._kinds, self._values, self._tops, self.program.sets
        self.work += len(state.key.stacks)
        return tuple(
            self._popped(stack)
            for stack in state.key.stacks
            if stack and kinds[tops[stack]] == CHARS and has(sets[values[tops[stack]]], code_point)
        )

    def _names(self, stack: int, token: int) -> bool:
        if stack == EMPTY:
            return False
        top = self._tops[stack]
        kind, value = self._kinds[top], self._values[top]
        return (kind == TOKEN and value == token) or (kind == NOT_TOKEN and value != token)

    def _loops_beyond_ascii(self, state: State) -> bool:
        """Whether every character beyond ASCII leads back."""
        sets = [
            self.program.sets[self._values[self._tops[stack]]]
            for stack in state.key.stacks
            if stack and self._kinds[self._tops[stack]] == CHARS
        ]
        beyond = [overlaps(chars, ASCII_END, MAX_CODE_POINT) for chars in sets]
        if any(some and not _has_all_beyond_ascii(s) for s, some in zip(sets, beyond, strict=True)):
            return False
        return any(beyond) and self._closed(self._seeds(state, ASCII_END)) is state

    # -- stacks

    def _stack(self, top: int, rest: int) -> int:
        """The number of a stack; equal stacks have one."""
        found = self._stacks.get((top, rest))
        if found is None:
            found = self._stacks[top, rest] = len(self._tops)
            self._tops.append(top)
            self._rests.append(rest)
        return found

    def _popped(self, stack: int) -> int:
        """A stack after its top is done."""
        following = self._nexts[self._tops[stack]]
        rest = self._rests[stack]
        return rest if following == END else self._stack(following, rest)

    def _shortened_stack(self, stack: int) -> int:
        path: list[int] = []
        while stack not in self._short:
            path.append(stack)
            stack = self._rests[stack]
        short = self._short[stack]
        for stack in reversed(path):
            short = self._short[stack] = self._stack(self._shortened_top(stack), short)
        return short

    def _shortened_top(self, stack: int) -> int:
        top = self._tops[stack]
        if self._kinds[top] != REPEAT:
            return top
        repeat = self._repeats[self._values[top]]
        n_max = UNBOUNDED if repeat.n_max > SHORT_BYTES else repeat.n_max
        less = Repeat(repeat.rule, min(repeat.n_min, SHORT_BYTES + 1), n_max)
        return top if less == repeat else self._counted_position(less, self._nexts[top])

    def _adopt_stack(self, owner: "Automaton", stack: int) -> int:
        tops: list[int] = []
        while stack != EMPTY:
            tops.append(owner._tops[stack])
            stack = owner._rests[stack]
        for top in reversed(tops):
            stack = self._stack(self._adopt_position(owner, top), stack)
        return stack

    def _adopt_position(self, owner: "Automaton", position: int) -> int:
        if position < len(self.program.kinds):
            return position
        return self._counted_position(
            owner._repeats[owner._values[position]], owner._nexts[position]
        )

    def _closed(self, seeds: tuple[int, ...]) -> State | None:
        """The state of some stacks once their tops are characters or tokens; None without any."""
        if not seeds:
            return None
        if seeds not in self._after:
            stacks = self._close(seeds)
            self._after[seeds] = self._state(Key(stacks)) if stacks else None
        return self._after[seeds]

    def _state(self, key: Key) -> State:
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = State(key)
        return found

    def _close(self, seeds: Iterable[int]) -> tuple[int, ...]:
        todo = list(seeds)
        seen = set(todo)
        ends: list[int] = []
        kinds, tops = self._kinds, self._tops
        while todo:
            stack = todo.pop()
            if stack == EMPTY or kinds[tops[stack]] not in (RULE, REPEAT):
                ends.append(stack)
                continue
            for called in self._opened(stack):
                if called not in seen:
                    seen.add(called)
                    todo.append(called)
            if self.work + len(seen) > self.limit:
                raise GrammarTooComplex("the grammar is too ambiguous to be followed")
        self.work += len(seen)
        return tuple(sorted(ends))

    def _opened(self, stack: int) -> list[int]:
        """What a stack with a rule or a repetition on top stands for."""
        top = self._tops[stack]
        rest = self._popped(stack)
        if self._kinds[top] == RULE:
            return self._calls(self._values[top], rest)
        repeat = self._repeats[self._values[top]]
        found = [] if repeat.n_min else [rest]
        if repeat.n_max != 1:
            again = self._once_less(top, repeat)
            rest = self._stack(again, self._rests[stack])
        return found + self._calls(repeat.rule, rest)

    def _calls(self, rule: int, rest: int) -> list[int]:
        starts = self.program.alternatives[rule]
        return [rest if start == END else self._stack(start, rest) for start in starts]

    def _once_less(self, position: int, repeat: Repeat) -> int:
        if repeat.n_min == 0 and repeat.n_max == UNBOUNDED:
            return position
        n_max = UNBOUNDED if repeat.n_max == UNBOUNDED else repeat.n_max - 1
        less = Repeat(repeat.rule, max(repeat.n_min - 1, 0), n_max)
        return self._counted_position(less, self._nexts[position])

    def _counted_position(self, repeat: Repeat, following: int) -> int:
        """A position of a repetition that is partly done; such positions are not the program's."""
        found = self._counted.get((repeat, following))
        if found is None:
            found = self._counted[repeat, following] = len(self._kinds)
            self._kinds.append(REPEAT)
            self._values.append(len(self._repeats))
            self._nexts.append(following)
            self._repeats.append(repeat)
        return found


def _ascii_bits(chars: CharSet) -> int:
    """Bit i: whether the ASCII character i is in the set."""
    bits = 0
    for low, high in chars:
        if low >= ASCII_END:
            break
        bits |= (1 << min(high, ASCII_END - 1) + 1) - (1 << low)
    return bits


def _has_all_beyond_ascii(chars: CharSet) -> bool:
    return bool(chars) and chars[-1][0] <= ASCII_END and chars[-1][1] == MAX_CODE_POINT
