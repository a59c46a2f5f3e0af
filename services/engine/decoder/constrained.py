"""The grammar of a running choice."""

from collections.abc import Callable
from functools import cached_property

from schemas.errors import RequestError
from schemas.params import Sampling
from services.engine.grammar.constraint import Constraint, Grammars, LazyConstraint
from services.engine.grammar.errors import GrammarError
from services.engine.grammar.triggers import compile_triggers


class Constraints:
    """Makes the constraints of a decoder's choices. find_hidden: see `hidden_ids`; called once."""

    def __init__(self, grammars: Grammars, find_hidden: Callable[[], frozenset[int]]) -> None:
        self._grammars = grammars
        self._find_hidden = find_hidden

    @cached_property
    def _hidden(self) -> frozenset[int]:
        return self._find_hidden()

    def of(self, sampling: Sampling) -> Constraint | LazyConstraint | None:
        """None where no grammar is asked for. Raises RequestError for one that cannot be followed."""
        if not sampling.grammar:
            return None
        hidden = self._hidden - set(sampling.preserved_tokens)
        try:
            grammar = self._grammars.get(sampling.grammar)
            if not sampling.grammar_lazy:
                return Constraint(grammar, hidden)
            return LazyConstraint(grammar, compile_triggers(sampling.grammar_triggers), hidden)
        except GrammarError as error:
            raise cannot_follow(error) from error


def cannot_follow(error: Exception) -> RequestError:
    """A grammar that is well-formed, but cannot be followed here."""
    return RequestError.invalid(f"Field 'grammar': {error}", "grammar")
