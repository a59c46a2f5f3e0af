"""A choice that runs: its pure state and its sampler. One thread."""

from schemas.errors import RequestError
from schemas.events import ChoiceEnd
from schemas.params import Params
from services.engine.decoder.backend import OpenChoice
from services.engine.decoder.job import Choice, LogMismatch, Place, Sampled
from services.engine.llama import probs
from services.engine.llama.context import Context
from services.engine.llama.pieces import Pieces
from services.engine.llama.sampler import Sampler
from services.engine.protocol import ChoiceJob, Emitted


def opener(context: Context) -> OpenChoice:
    """How the choices of this context are opened."""
    pieces = Pieces(context.vocab, context.n_vocab)

    def open_choice(job: ChoiceJob, params: Params, place: Place) -> Running:
        return Running(context, pieces, job, params, place)

    return open_choice


class Running:
    """One choice in its slot. Raises RequestError where its parameters or its log make no sense."""

    def __init__(
        self, context: Context, pieces: Pieces, job: ChoiceJob, params: Params, place: Place
    ) -> None:
        self._context = context
        self._pieces = pieces
        self._sampling = params.sampling
        self._preserved = frozenset(params.sampling.preserved_tokens)
        self.choice = Choice(job, params, place)
        self.end = self._replay(job)
        """The end, where the log holds it already."""
        self._sampler = Sampler(
            context.vocab,
            params.sampling,
            seed=job.seed,
            n_ctx=context.n_ctx_slot,
            eog_ids=context.eog_ids,
        )
        self._sampler.accept(job.prompt + job.emitted)
        self._sampler.skip_draws(sum(job.draws) if job.draws else len(job.emitted))

    def sample(self, row: int, clock_us: int) -> tuple[Emitted, ChoiceEnd | None]:
        """Choose the next token from a batch row's logits."""
        return self.choice.take(self._next(row), clock_us)

    def close(self) -> None:
        self._sampler.close()

    def _replay(self, job: ChoiceJob) -> ChoiceEnd | None:
        try:
            return self.choice.replay([self._sampled(token) for token in job.emitted])
        except (LogMismatch, ValueError) as error:
            raise RequestError.server(f"the log cannot be continued: {error}") from error

    def _next(self, row: int) -> Sampled:
        pointer, n_top = self._context.pointer, self._sampling.n_probs
        if n_top <= 0:
            return self._sampled(self._sampler.sample(pointer, row))
        if self._sampling.post_sampling_probs:
            token, found = probs.sample_with_probs(self._sampler, pointer, row, n_top, self._pieces)
            return self._sampled(token, found)
        token = self._sampler.sample(pointer, row)
        return self._sampled(token, probs.before_sampling(pointer, row, token, n_top, self._pieces))

    def _sampled(self, token: int, found: probs.TokenProbs | None = None) -> Sampled:
        return Sampled(
            id=token,
            piece=self._pieces.piece(token, is_special=token in self._preserved),
            is_eog=token in self._context.eog_ids,
            probs=found,
        )
