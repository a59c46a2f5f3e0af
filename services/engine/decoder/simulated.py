"""A decoder that computes nothing: it keeps the pace that it is told, and says made-up words.

It runs the real loop over the real scheduler, so that slots, cancelling, choices, stop strings,
limits and continued logs are what they are elsewhere. No model, no llama.cpp (but for the vocabulary
of a model file, where one is named).
"""

import os
import time
from collections.abc import Sequence

import msgspec

from schemas.errors import NOT_SUPPORTED, Problem, RequestError
from schemas.events import ChoiceEnd
from schemas.params import Params
from services.engine.batches import DECODED, Batch
from services.engine.byte_vocabulary import N_CTX_TRAIN, ByteVocabulary
from services.engine.context_size import slot_context
from services.engine.decoder.backend import OpenChoice, Running
from services.engine.decoder.job import Choice, LogMismatch, Place, Sampled
from services.engine.decoder.loop import Loop
from services.engine.decoder.pipe import Pipe
from services.engine.decoder.simulated_pace import PacedPipe, PacedScheduler
from services.engine.decoder.simulated_text import Pieces, Voice, Words
from services.engine.errors import SlotFileError
from services.engine.llama.gguf import read_gguf
from services.engine.protocol import ChoiceJob, DecoderConfig, Emitted, Ready
from services.engine.scheduler import Sizes
from services.engine.simulation import Simulation
from services.engine.states import State

EXIT_SIMULATED_FAILURE = 71


def run_simulated(config: DecoderConfig, simulation: Simulation, pipe: Pipe) -> None:
    """Serve the front until it says Stop. Raises PipeClosed, ModelNotLoadable."""
    model = SimulatedModel(config)
    sizes = Sizes(
        n_slots=config.n_slots,
        n_ctx=model.n_ctx,
        n_ctx_slot=model.n_ctx_slot,
        n_batch=config.n_batch,
        n_ubatch=config.n_ubatch,
        caching=msgspec.structs.replace(config.caching, ram_mib=0),
    )
    scheduler = PacedScheduler(sizes, model, simulation, time.monotonic)
    paced = PacedPipe(pipe, scheduler, time.monotonic)
    pipe.write([Ready(n_ctx=model.n_ctx, n_ctx_slot=model.n_ctx_slot, n_slots=config.n_slots)])
    Loop(model, opener(model, simulation, paced), scheduler, paced, model).run()
    paced.flush()


class SimulatedModel:
    """Model and Memory of the loop. Raises ModelNotLoadable where a named file is no model."""

    def __init__(self, config: DecoderConfig) -> None:
        self.vocabulary, n_ctx_train = _vocabulary(config)
        self.n_vocab = self.vocabulary.n_vocab
        self.words = Words(self.vocabulary)
        self.n_ctx, self.n_ctx_slot = slot_context(config, n_ctx_train)

    def decode(self, batch: Batch) -> int:
        """Nothing is computed: the scheduler has waited already."""
        del batch
        return DECODED

    # There are no cells, so all of them can be kept, and none be saved.

    can_move = True
    needs_checkpoints = False
    is_settled = True

    def can_keep(self, slot: int, n_tokens: int) -> bool:
        del slot, n_tokens
        return True

    def keep(self, slot: int, n_tokens: int) -> int:
        del slot
        return n_tokens

    def copy(self, source: int, target: int) -> None:
        pass

    def move(self, slot: int, source: int, target: int, n: int) -> None:
        pass

    def n_bytes(self, slot: int) -> int:
        del slot
        return 0

    def save(self, slot: int, *, is_partial: bool = False) -> State | None:
        del slot, is_partial

    def load(self, slot: int, state: State, *, is_partial: bool = False) -> bool:
        del slot, state, is_partial
        return False

    def save_file(self, slot: int, path: str, tokens: Sequence[int]) -> int:
        del slot, path, tokens
        raise SlotFileError("a simulated decoder has nothing to save")

    def load_file(self, slot: int, path: str) -> tuple[list[int], int]:
        del slot, path
        raise SlotFileError("a simulated decoder has nothing to restore")


def _vocabulary(config: DecoderConfig) -> tuple[Pieces, int]:
    """The vocabulary to speak, and the tokens that its model was trained on."""
    if not config.model_path:
        return ByteVocabulary(), N_CTX_TRAIN
    from services.engine.llama.vocabulary import Vocabulary

    n_ctx_train = read_gguf(config.model_path).n_ctx_train or N_CTX_TRAIN
    return Vocabulary(config.model_path, is_verbose=config.is_verbose), n_ctx_train


def opener(model: SimulatedModel, simulation: Simulation, pipe: PacedPipe) -> OpenChoice:
    """How the choices of a simulation are opened."""
    lifetime = Lifetime(simulation.fail_after, pipe)

    def open_choice(job: ChoiceJob, params: Params, place: Place) -> Running:
        if params.sampling.grammar:
            message = "a simulated decoder follows no grammar"
            raise RequestError(Problem(code=NOT_SUPPORTED, message=message, param="grammar"))
        return SimulatedRunning(model, simulation, job, params, place, lifetime)

    return open_choice


class Lifetime:
    """Ends the process after so many tokens, as a crash would; −1: never."""

    def __init__(self, n_tokens: int, pipe: PacedPipe) -> None:
        self._n_left = n_tokens
        self._pipe = pipe

    def on_token(self) -> None:
        if self._n_left == 0:
            self._pipe.flush()
            os._exit(EXIT_SIMULATED_FAILURE)
        self._n_left -= 1


class SimulatedRunning:
    """One choice in its slot. Raises RequestError for a log that says something else."""

    def __init__(
        self,
        model: SimulatedModel,
        simulation: Simulation,
        job: ChoiceJob,
        params: Params,
        place: Place,
        lifetime: Lifetime,
    ) -> None:
        self._model = model
        self._voice = Voice(model.words, job.prompt, job.seed)
        self._n_top = params.sampling.n_probs
        never = simulation.eos_after < 0 or params.sampling.ignore_eos
        self._eos_at = -1 if never else simulation.eos_after
        self._lifetime = lifetime
        self._index = len(job.emitted)
        self.choice = Choice(job, params, place)
        self.end = self._replay(job)

    def sample(self, row: int, clock_us: int) -> tuple[Emitted, ChoiceEnd | None]:
        """The next made-up token."""
        del row
        self._lifetime.on_token()
        index, self._index = self._index, self._index + 1
        return self.choice.take(self._at(index), clock_us)

    def end_reasoning(self) -> bool:
        """It does not think."""
        return False

    def close(self) -> None:
        """It holds nothing."""

    def _at(self, index: int) -> Sampled:
        if index == self._eos_at:
            return self._model.words.end
        return self._voice.with_probs(index, self._n_top) if self._n_top else self._voice.at(index)

    def _replay(self, job: ChoiceJob) -> ChoiceEnd | None:
        try:
            return self.choice.replay([self._logged(token) for token in job.emitted])
        except (LogMismatch, ValueError) as error:
            raise RequestError.server(f"the log cannot be continued: {error}") from error

    def _logged(self, token: int) -> Sampled:
        vocabulary = self._model.vocabulary
        piece = vocabulary.piece(token, special=False)
        return Sampled(id=token, piece=piece, is_eog=token in vocabulary.eog)
