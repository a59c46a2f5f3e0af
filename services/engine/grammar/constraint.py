"""What one choice may say next. Single-threaded."""

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from services.engine.grammar.automaton import Automaton, State
from services.engine.grammar.errors import TokenRefused
from services.engine.grammar.gbnf import parse
from services.engine.grammar.program import Program
from services.engine.grammar.tokens import Ids, TokenTable
from services.engine.grammar.triggers import Seen, Triggers, Watch

WORK_AT_ONCE = 150_000
"""Most stacks that one choice may have looked at in a step: some tenths of a second."""
WORK_PER_TOKEN = 20_000
"""What a choice may use in the long run, per token."""
MAX_CACHED_LISTS = 128
MAX_CACHED_GRAMMARS = 32
T = TypeVar("T")


class Grammar:
    """A grammar that the choices of a decoder share, with what they found out about it."""

    def __init__(self, program: Program, table: TokenTable) -> None:
        self.table = table
        self._program = program
        self._automaton = Automaton(program)
        self._lists: OrderedDict[State, Ids] = OrderedDict()

    @property
    def automaton(self) -> Automaton:
        """The one to go on with: a fresh one when the last has kept too much."""
        if self._automaton.is_full:
            self._automaton = Automaton(self._program)
            self._lists.clear()
        return self._automaton

    def of_text(self, automaton: Automaton, state: State) -> Ids:
        """See TokenTable.of_text; the last answers are kept. Raises GrammarTooComplex."""
        short = automaton.shortened(state)
        ids = self._kept(automaton, short)
        return ids if short is state else self.table.with_long(automaton, state, ids)

    def _kept(self, automaton: Automaton, state: State) -> Ids:
        found = self._lists.get(state)
        if found is None:
            found = self._lists[state] = self.table.of_text(automaton, state)
            if len(self._lists) > MAX_CACHED_LISTS:
                self._lists.popitem(last=False)
        else:
            self._lists.move_to_end(state)
        return found


class Grammars:
    """The grammars of a decoder, the last used ones kept. make_table: called once, when needed."""

    def __init__(
        self, make_table: Callable[[], TokenTable], find_token: Callable[[str], int | None]
    ) -> None:
        self._make_table = make_table
        self._find_token = find_token
        self._table: TokenTable | None = None
        self._grammars: OrderedDict[str, Grammar] = OrderedDict()

    def get(self, text: str) -> Grammar:
        """Raises GrammarError."""
        found = self._grammars.pop(text, None)
        if found is None:
            if self._table is None:
                self._table = self._make_table()
            found = Grammar(parse(text, self._find_token), self._table)
            if len(self._grammars) >= MAX_CACHED_GRAMMARS:
                self._grammars.popitem(last=False)
        self._grammars[text] = found
        return found


class Constraint:
    """Follows a grammar through one choice's tokens.

    hidden: tokens whose text is never shown, so that it cannot count as text; the grammar may still
    name them. All calls raise GrammarTooComplex when this choice has used up its share of work.
    """

    def __init__(self, grammar: Grammar, hidden: Collection[int] = ()) -> None:
        self._grammar = grammar
        self._automaton = grammar.automaton
        self._state = self._automaton.start
        self._hidden = frozenset(hidden)
        self._is_shown = _shown(grammar.table.n_vocab, self._hidden)
        self._work = WORK_AT_ONCE

    @property
    def can_end(self) -> bool:
        """Whether the text so far is complete."""
        return self._state.can_end

    def allows(self, token: int) -> bool:
        """Whether a token may come next."""
        return self._metered(lambda: self._may_follow(token))

    def allowed(self) -> Ids:
        """All tokens that may come next, ascending."""
        return self._metered(self._find_allowed)

    def accept(self, token: int) -> None:
        """Take a token. Raises TokenRefused."""
        if token not in self._grammar.table.end_ids:
            self.accept_piece(token, self._grammar.table.pieces[token])
        elif not self._state.can_end:
            raise TokenRefused("the grammar does not allow an end here")

    def accept_piece(self, token: int, piece: bytes) -> None:
        """Take a token that is no end, or what is left of it. Raises TokenRefused."""
        self._work = min(self._work + WORK_PER_TOKEN, WORK_AT_ONCE)
        after = self._metered(lambda: self._after(token, piece))
        if after is None:
            raise TokenRefused(f"the grammar does not allow token {token} here")
        self._state = after
        self._move_on()

    def _metered(self, work: Callable[[], T]) -> T:
        """Do something with the automaton on this choice's account."""
        automaton = self._automaton
        before = automaton.work
        automaton.limit = before + self._work
        try:
            return work()
        finally:
            self._work -= automaton.work - before

    def _may_follow(self, token: int) -> bool:
        if token in self._grammar.table.end_ids:
            return self._state.can_end
        return self._after(token, self._grammar.table.pieces[token]) is not None

    def _after(self, token: int, piece: bytes) -> State | None:
        """The state after a token that is no end."""
        automaton = self._automaton
        by_text = None
        if token not in self._hidden and piece and 0 not in piece:
            by_text = automaton.feed(self._state, piece)
        if not automaton.has_tokens:
            return by_text
        by_name = automaton.step_token(self._state, token)
        if by_text is None or by_name is None:
            return by_text or by_name
        return automaton.union(by_text, by_name)

    def _find_allowed(self) -> Ids:
        table, automaton = self._grammar.table, self._automaton
        ids = self._grammar.of_text(automaton, self._state)
        shown = ids[self._is_shown[ids]]
        if not automaton.has_tokens and not self._state.can_end:
            return shown
        named = table.named(automaton, self._state)
        ends = sorted(table.end_ids) if self._state.can_end else []
        return np.unique(np.concatenate([shown, named, np.array(ends, dtype=np.int32)]))

    def _move_on(self) -> None:
        """Change to the grammar's newest automaton, so that a full one can go."""
        newest = self._grammar.automaton
        if newest is not self._automaton:
            newest.limit = newest.work + WORK_AT_ONCE
            self._state = newest.adopt(self._state, self._automaton)
            self._automaton = newest


class LazyConstraint:
    """A constraint that begins with the first trigger in the output. See Constraint.

    A token that triggers, but goes on as the grammar does not allow, is refused like any other.
    """

    def __init__(self, grammar: Grammar, triggers: Triggers, hidden: Collection[int] = ()) -> None:
        self._grammar = grammar
        self._hidden = hidden
        self._watch = Watch(triggers)
        self._refused: set[int] = set()
        self._constraint: Constraint | None = None

    def allows(self, token: int) -> bool:
        """Whether a token may come next."""
        if self._constraint is not None:
            return self._constraint.allows(token)
        seen = self._watch.look(token, self._grammar.table.pieces[token])
        is_allowed = seen is None or self._begun(seen) is not None
        if not is_allowed:
            self._refused.add(token)
        return is_allowed

    def allowed(self) -> Ids:
        """The tokens that may come next; before a trigger all but those that were found wanting."""
        if self._constraint is not None:
            return self._constraint.allowed()
        ids = np.arange(self._grammar.table.n_vocab, dtype=np.int32)
        return np.setdiff1d(ids, list(self._refused))

    def accept(self, token: int) -> None:
        """Take a token. Raises TokenRefused."""
        if self._constraint is not None:
            self._constraint.accept(token)
            return
        self._refused.clear()
        piece = self._grammar.table.pieces[token]
        seen = self._watch.look(token, piece)
        if seen is None:
            self._watch.take(token, piece)
            return
        self._constraint = self._begun(seen)
        if self._constraint is None:
            raise TokenRefused("what came with the trigger does not fit the grammar")

    def _begun(self, seen: Seen) -> Constraint | None:
        """The constraint after what came with a trigger; None if it does not fit."""
        constraint = Constraint(self._grammar, self._hidden)
        try:
            for token, piece in seen:
                constraint.accept_piece(token, piece)
        except TokenRefused:
            return None
        return constraint


def _shown(n_vocab: int, hidden: Collection[int]) -> npt.NDArray[np.bool_]:
    flags = np.ones(n_vocab, dtype=np.bool_)
    flags[list(hidden)] = False
    return flags
