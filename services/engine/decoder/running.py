"""A choice that runs: its pure state and its sampler. One thread."""

from schemas.errors import RequestError
from schemas.events import ChoiceEnd, TokenProbs
from schemas.params import Params
from services.engine.decoder.backend import OpenChoice
from services.engine.decoder.constrained import Constraints, cannot_follow
from services.engine.decoder.job import Choice, LogMismatch, Place, Sampled
from services.engine.decoder.reasoning import Phase, reasoning_budget
from services.engine.grammar.constraint import Constraint, LazyConstraint
from services.engine.grammar.errors import GrammarError, TokenRefused
from services.engine.llama import probs
from services.engine.llama.candidates import Candidates
from services.engine.llama.context import Context
from services.engine.llama.grammar import grammars_of, hidden_ids
from services.engine.llama.pieces import Pieces
from services.engine.llama.sampler import Sampler
from services.engine.marks import ONE_EACH, Marks, total
from services.engine.protocol import ChoiceJob, Emitted

MAX_TRIES = 64
"""More than two are only needed by a lazy grammar that waits for its trigger."""


def opener(context: Context) -> OpenChoice:
    """How the choices of this context are opened."""
    pieces = Pieces(context.vocab, context.n_vocab)
    candidates = Candidates(context.n_vocab)
    constraints = Constraints(grammars_of(context, pieces), lambda: hidden_ids(pieces))

    def open_choice(job: ChoiceJob, params: Params, place: Place) -> Running:
        constraint = constraints.of(params.sampling)
        return Running(context, pieces, candidates, job, params, place, constraint)

    return open_choice


class Running:
    """One choice in its slot. Raises RequestError where its parameters or its log make no sense.

    candidates: shared by all choices, since one is sampled at a time.
    """

    def __init__(
        self,
        context: Context,
        pieces: Pieces,
        candidates: Candidates,
        job: ChoiceJob,
        params: Params,
        place: Place,
        constraint: Constraint | LazyConstraint | None = None,
    ) -> None:
        self._context = context
        self._pieces = pieces
        self._sampling = params.sampling
        self._preserved = frozenset(params.sampling.preserved_tokens)
        self.choice = Choice(job, params, place)
        self.end = self._replay(job)
        """The end, where the log holds it already."""
        self._budget = reasoning_budget(self._sampling, self._pieces.piece)
        self._constraint = constraint
        self._restore(job)
        self._candidates = candidates
        self._sampler = Sampler(
            pieces,
            params.sampling,
            seed=job.seed,
            n_ctx=context.n_ctx_slot,
            eog_ids=context.eog_ids,
        )
        marks = total(len(job.emitted), job.draws, job.xtc_draws, job.mu)
        self._sampler.restore(job.prompt + job.emitted, marks, len(job.emitted))

    def sample(self, row: int, clock_us: int) -> tuple[Emitted, ChoiceEnd | None]:
        """Choose the next token from a batch row's logits. Raises RequestError where the grammar
        leads nowhere."""
        try:
            sampled = self._next(row)
        except GrammarError as error:
            raise cannot_follow(error) from error
        return self.choice.take(sampled, clock_us)

    def end_reasoning(self) -> bool:
        """Force the end of thinking; False where it does not think."""
        return self._budget is not None and self._budget.end_now()

    def close(self) -> None:
        self._sampler.close()

    def _replay(self, job: ChoiceJob) -> ChoiceEnd | None:
        try:
            return self.choice.replay([self._sampled(token) for token in job.emitted])
        except (LogMismatch, ValueError) as error:
            raise RequestError.server(f"the log cannot be continued: {error}") from error

    def _restore(self, job: ChoiceJob) -> None:
        """Bring budget and grammar to where the log ends."""
        for number, token in enumerate(job.emitted):
            if number in job.controlled:
                self.end_reasoning()
            try:
                self._watch(token)
            except GrammarError as error:
                raise RequestError.server(f"the log cannot be continued: {error}") from error
        if len(job.emitted) in job.controlled:
            self.end_reasoning()

    def _watch(self, token: int) -> None:
        """Let budget and grammar see a token. A lazy grammar sees no thoughts, but how they end."""
        budget, rests = self._budget, self._grammar_rests
        if budget is not None:
            budget.accept(token)
        if self._constraint is None:
            return
        if not rests:
            self._constraint.accept(token)
        elif budget is not None and budget.phase is Phase.AFTER:
            for ending in budget.end_met:
                self._constraint.accept(ending)

    @property
    def _grammar_rests(self) -> bool:
        is_thinking = self._budget is not None and self._budget.is_thinking
        return self._sampling.grammar_lazy and is_thinking

    def _next(self, row: int) -> Sampled:
        """The fast way in one call of llama.cpp, or by way of the candidates where they matter."""
        forced = None if self._budget is None else self._budget.forced
        n_top, is_post = self._sampling.n_probs, self._sampling.post_sampling_probs
        is_free = forced is None and self._constraint is None
        if self._sampler.is_simple and is_free and not (is_post and n_top > 0):
            token = self._sampler.sample(self._context.pointer, row)
        else:
            token = self._choose(row, forced)
        self._watch(token)
        found = self._probs(row, token, n_top) if n_top > 0 else None
        return self._sampled(token, found, self._sampler.take_marks())

    def _choose(self, row: int, forced: int | None) -> int:
        """As llama-server: freely at first, and again from what the grammar allows if it has to be."""
        constraint = None if self._grammar_rests else self._constraint
        self._fill(row, forced)
        token = self._sampler.choose(self._candidates)
        if constraint is not None and not constraint.allows(token):
            token = self._choose_allowed(row, forced, constraint)
        self._sampler.accept(token)
        return token

    def _fill(self, row: int, forced: int | None) -> None:
        self._candidates.fill(self._context.pointer, row)
        if forced is not None:
            self._candidates.force(forced)

    def _choose_allowed(
        self, row: int, forced: int | None, constraint: Constraint | LazyConstraint
    ) -> int:
        """Choose again, from what the grammar allows. Raises TokenRefused if that is nothing."""
        for attempt in range(MAX_TRIES):
            ids = constraint.allowed()
            if not len(ids):
                raise TokenRefused("no token of this model can go on here")
            self._fill(row, forced)
            if attempt == 0:
                self._candidates.keep(ids)
            else:  # samplers that cannot deal with impossible candidates
                self._candidates.only(ids)
            token = self._sampler.choose(self._candidates)
            if constraint.allows(token):
                return token
        raise TokenRefused("the samplers choose nothing that is allowed")

    def _probs(self, row: int, token: int, n_top: int) -> TokenProbs:
        if self._sampling.post_sampling_probs:
            return probs.after_sampling(self._candidates, token, n_top, self._pieces)
        return probs.before_sampling(self._context.pointer, row, token, n_top, self._pieces)

    def _sampled(
        self, token: int, found: TokenProbs | None = None, marks: Marks = ONE_EACH
    ) -> Sampled:
        return Sampled(
            id=token,
            piece=self._pieces.piece(token, is_special=token in self._preserved),
            is_eog=token in self._context.eog_ids,
            probs=found,
            marks=marks,
        )
