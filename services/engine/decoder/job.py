"""One running choice: its text, its counters, when it ends. Pure: pieces and times come in, events go out."""

from dataclasses import dataclass

from schemas.events import ChoiceEnd, Timings, TokenProbs
from schemas.params import Params
from services.engine.context_shift import is_full
from services.engine.decoder.indentation import Indentation
from services.engine.marks import ONE_EACH, Marks
from services.engine.protocol import ChoiceJob, Emitted
from services.engine.text import TextCursor


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a choice runs. n_cached: prompt tokens that its first attempt reused. started_us: the
    clock's microseconds when its slot was taken. can_shift: a full slot is no end."""

    generation_id: str
    slot: int
    n_ctx_slot: int
    n_cached: int
    started_us: int
    can_shift: bool = False


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One token as it came out of the model: its bytes, and whether it ends a generation.

    marks: what the log must keep of how it was chosen.
    """

    id: int
    piece: bytes
    is_eog: bool
    probs: TokenProbs | None = None
    marks: Marks = ONE_EACH


class LogMismatch(Exception):
    """The log of a continued choice says something else than its tokens do."""


class Choice:
    """State of one choice in its slot. Times are microseconds of one monotonic clock."""

    def __init__(self, job: ChoiceJob, params: Params, place: Place) -> None:
        self.job = job
        self.place = place
        limits = params.limits
        self._limit = limits.n_predict
        self._limit_us = limits.t_max_predict_ms * 1000
        self._indentation = Indentation(limits.n_indent) if limits.n_indent > 0 else None
        self._cursor = TextCursor(limits.stop)
        self._n_predicted = 0
        self._n_discarded = 0
        self._is_truncated = False
        self._n_chars = 0
        self._has_new_line = False
        self._first_us = 0
        self._last_us = 0
        self._stop_type = ""

    @property
    def n_predicted(self) -> int:
        """Tokens so far, over all attempts."""
        return self._n_predicted

    def replay(self, tokens: list[Sampled]) -> ChoiceEnd | None:
        """Go through the tokens that the log holds; the end, if they were all. Raises LogMismatch."""
        texts = self.job.texts or ("",) * len(tokens)
        shifts = {shift.index: shift.n_discard for shift in self.job.shifts}
        for token, logged in zip(tokens, texts, strict=True):
            self._shift_if(shifts)
            if self._stop_type:
                raise LogMismatch(f"token {self._n_predicted} comes after the end")
            text = self._take(token)
            if self.job.texts and text != logged:
                number = self._n_predicted - 1
                raise LogMismatch(f"token {number} reads {text!r} here and {logged!r} in the log")
        self._shift_if(shifts)
        return self._end() if self._stop_type else None

    def shift(self, n_discard: int) -> None:
        """Its slot forgot so many tokens."""
        self._n_discarded += n_discard
        self._is_truncated = True

    def _shift_if(self, shifts: dict[int, int]) -> None:
        if (n_discard := shifts.get(self._n_predicted)) is not None:
            self.shift(n_discard)

    def take(self, token: Sampled, now_us: int) -> tuple[Emitted, ChoiceEnd | None]:
        """A token was sampled: what to report of it, and the end if it is the last one."""
        index, is_first = self._n_predicted, not self._first_us
        self._last_us = now_us
        if is_first:
            self._first_us = now_us
        elapsed_us = now_us - self.place.started_us
        emitted = Emitted(
            generation_id=self.place.generation_id,
            choice=self.job.choice,
            index=index,
            id=token.id,
            text=self._take(token),
            probs=token.probs,
            draws=token.marks.draws,
            xtc_draws=token.marks.xtc_draws,
            mu=token.marks.mu,
            elapsed_us=elapsed_us,
            prompt_us=elapsed_us if is_first else 0,
        )
        return emitted, self._end() if self._stop_type else None

    def _take(self, token: Sampled) -> str:
        self._n_predicted += 1
        text = self._cursor.feed(token.piece, is_last=token.is_eog)
        self._n_chars += len(text)
        is_outdented = self._is_outdented(token)
        self._has_new_line |= "\n" in text
        self._stop_type = self._why_stop(token, text, is_outdented=is_outdented)
        return text

    def _is_outdented(self, token: Sampled) -> bool:
        return (
            self._indentation is not None
            and not self._cursor.stop_word
            and self._indentation.feed(token.piece, has_new_line=self._has_new_line)
        )

    def _why_stop(self, token: Sampled, text: str, *, is_outdented: bool) -> str:
        if token.is_eog:
            return "eos"
        if is_outdented or ("\n" in text and self._is_out_of_time):
            return "limit"
        if self._cursor.stop_word:
            return "word"
        is_spent = 0 <= self._limit <= self._n_predicted
        return "limit" if is_spent or self._is_context_full else ""

    @property
    def _is_out_of_time(self) -> bool:
        """Looked at after each line. Of tokens of the log, earlier attempts have judged."""
        return 0 < self._limit_us < self._predicted_us and self._first_us > 0

    @property
    def _predicted_us(self) -> int:
        """Generating time of all attempts."""
        return self._last_us - self._first_us + self.job.spent_predicted_us

    @property
    def _n_context(self) -> int:
        """Tokens in the KV cache: all but the one just sampled, and those that were forgotten."""
        return len(self.job.prompt) + self._n_predicted - 1 - self._n_discarded

    @property
    def _is_context_full(self) -> bool:
        """No room for the sampled token and another one (llama-server without context shift)."""
        return not self.place.can_shift and is_full(self._n_context, self.place.n_ctx_slot)

    def _end(self) -> ChoiceEnd:
        tail = self._cursor.tail()
        is_cut = self._stop_type == "limit" and bool(self._cursor.stop_word)
        return ChoiceEnd(
            choice=self.job.choice,
            stop_type="word" if is_cut else self._stop_type,
            stopping_word=self._cursor.stop_word,
            tail=tail,
            n_predicted=self._n_predicted,
            n_prompt=len(self.job.prompt),
            n_cached=self.place.n_cached,
            n_context=self._n_context,
            n_cut=self._n_cut(tail),
            slot=self.place.slot,
            is_truncated=self._is_truncated or self._is_context_full,
            has_new_line=self._has_new_line or "\n" in tail,
            timings=self._timings(),
        )

    def _n_cut(self, tail: str) -> int:
        if self._indentation is None or not self._indentation.n_kept:
            return 0
        return max(0, self._n_chars + len(tail) - len(self._indentation.kept_text()))

    def _timings(self) -> Timings:
        """Over all attempts: prefill until the first token of each, generation from there on."""
        prompt_us = max(0, self._first_us - self.place.started_us) + self.job.spent_prompt_us
        return Timings(
            n_cached=self.place.n_cached,
            n_prompt=len(self.job.prompt) - self.place.n_cached,
            prompt_ms=prompt_us / 1000,
            n_predicted=self._n_predicted,
            predicted_ms=self._predicted_us / 1000,
        )
