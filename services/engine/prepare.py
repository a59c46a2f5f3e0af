"""Answers what needs a vocabulary and templates but no weights: prepare, apply-template, tokenize.

Runs in the front. Small questions are answered at once on the event-loop thread (below 1 ms);
rendering and large inputs go to worker threads, so that the loop is never held up for long.
"""

import asyncio
import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import orjson
from msgspec.structs import replace

from schemas.errors import RequestError
from schemas.events import Prompt
from schemas.params import Params
from schemas.rpc import (
    ApplyTemplate,
    Detokenize,
    Detokenized,
    Prepare,
    Prepared,
    TemplateApplied,
    Tokenize,
    Tokenized,
)
from services.engine.config import EngineSettings
from services.engine.fill_in import FillRoom, fill_in_ids
from services.engine.open_model import AnyVocabulary
from services.engine.output_format.answer import with_output_format
from services.engine.params import resolve
from services.engine.prompts import PromptReader, check_ids, mixed_ids
from services.engine.reasoning import with_reasoning
from services.engine.templates import Rendered, Templates

INLINE_BYTES = 2048
"""Inputs up to this are handled on the event-loop thread."""
HEAVY_BYTES = 32 * 1024
"""Inputs above this get their own worker thread, so that small ones do not queue behind them."""
N_LIGHT_THREADS = 2
MAX_CHOICES = 1024
"""Of one request; what has no slot yet waits for one."""

JsonObject = dict[str, Any]
T = TypeVar("T")
VocabularyQuestion = Prepare | ApplyTemplate | Tokenize | Detokenize
VocabularyAnswer = Prepared | TemplateApplied | Tokenized | Detokenized


class Preparer:
    """Answers questions about prompts of one model. `close` ends its threads.

    n_ctx: tokens per slot. All questions may be asked at once; each raises RequestError when the
    question cannot be answered.
    """

    def __init__(
        self,
        settings: EngineSettings,
        vocabulary: AnyVocabulary,
        templates: Templates,
        *,
        n_ctx: int,
    ) -> None:
        self._settings = settings
        self._vocabulary = vocabulary
        self._templates = templates
        self._n_ctx = n_ctx
        self._prompts = PromptReader(vocabulary, n_ctx)
        self._fill_room = FillRoom(
            n_ctx=n_ctx,
            n_batch=settings.n_batch,
            n_predict=settings.defaults.limits.n_predict,
            is_suffix_first=settings.is_suffix_first,
        )
        _ = (
            vocabulary.eog,
            vocabulary.markers,
            vocabulary.longest_piece_bytes,
        )  # 0.1 s now, not in the first request
        templates.warm_up()
        self._light = ThreadPoolExecutor(N_LIGHT_THREADS, thread_name_prefix="prepare")
        self._heavy = ThreadPoolExecutor(1, thread_name_prefix="prepare-large")

    def close(self) -> None:
        """Let running work end on its own; what waits is dropped."""
        self._light.shutdown(wait=False, cancel_futures=True)
        self._heavy.shutdown(wait=False, cancel_futures=True)

    async def answer(self, question: VocabularyQuestion) -> VocabularyAnswer:
        """Event-loop thread; waits for a worker where the work is not small."""
        match question:
            case Prepare():
                return await self.prepare_soon(question)
            case ApplyTemplate():
                size = len(question.body)
                return await self._run(lambda: self.apply_template(question), size, renders=True)
            case Tokenize():
                return await self._run(lambda: self.tokenize(question), len(question.content))
            case Detokenize():
                return await self._run(lambda: self.detokenize(question), 4 * len(question.ids))

    async def prepare_soon(self, question: Prepare) -> Prepared:
        """The same for this kind of question."""
        is_chat, size = question.kind == "chat", len(question.body)
        return await self._run(lambda: self.prepare(question), size, renders=is_chat)

    async def _run(self, work: Callable[[], T], n_bytes: int, *, renders: bool = False) -> T:
        if n_bytes <= INLINE_BYTES and not renders:
            return work()
        pool = self._heavy if n_bytes > HEAVY_BYTES else self._light
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    # ---- the answers; any thread

    def prepare(self, question: Prepare) -> Prepared:
        """Prompt ids and resolved parameters. Blocks while it renders and tokenizes."""
        body = read_body(question.body)
        params = resolve(
            body,
            self._settings.defaults,
            self._vocabulary,
            n_slots=self._settings.n_slots,
            n_ctx=self._n_ctx,
        )
        prompts, rendered = self._read_prompts(question, body)
        n_choices = len(prompts) * params.n_cmpl
        if n_choices > MAX_CHOICES:
            raise RequestError.invalid(
                f"this request asks for {n_choices} completions, at most {MAX_CHOICES} are given: "
                "send fewer prompts",
                "prompt",
            )
        params, output_format = self._with_answer(params, body, rendered)
        return Prepared(
            prompts=prompts,
            params=params,
            output_format=output_format,
            n_slots=min(n_choices, self._settings.n_slots),
            n_ctx=self._n_ctx,
        )

    def _with_answer(
        self, params: Params, body: JsonObject, rendered: Rendered | None
    ) -> tuple[Params, bytes]:
        """With what follows from how the model answers, and its output format (empty: plain text)."""
        sampling = with_reasoning(
            params.sampling,
            body,
            self._vocabulary,
            tags=None if rendered is None else rendered.think_tags,
            generation_prompt="" if rendered is None else rendered.generation_prompt,
        )
        params = replace(params, sampling=sampling)
        if rendered is None:
            return params, b""
        if self._settings.skips_parsing:
            rendered = dataclasses.replace(rendered, known=None)
        return with_output_format(params, rendered, body, self._vocabulary)

    def _read_prompts(
        self, question: Prepare, body: JsonObject
    ) -> tuple[tuple[Prompt, ...], Rendered | None]:
        if question.kind == "chat":
            rendered = self._templates.apply(body, question.created_at_ms)
            return (self._prompts.of_text(rendered.prompt),), rendered
        if question.kind == "infill":
            ids = fill_in_ids(body, self._vocabulary, self._fill_room)
            return (self._prompts.of_ids(ids),), None
        if "prompt" not in body:
            raise RequestError.invalid('"prompt" is required', "prompt")
        return self._prompts.read(body["prompt"]), None

    def apply_template(self, question: ApplyTemplate) -> TemplateApplied:
        body = read_body(question.body)
        return TemplateApplied(prompt=self._templates.apply(body, question.created_at_ms).prompt)

    def tokenize(self, question: Tokenize) -> Tokenized:
        content = _json(question.content)

        def text_ids(text: str, *, is_first: bool) -> tuple[int, ...]:
            return self._vocabulary.tokenize(
                text,
                add_special=is_first and question.add_special,
                parse_special=question.parse_special,
            )

        items = cast("list[object]", content) if isinstance(content, list) else [content]
        ids = mixed_ids(self._vocabulary, items, text_ids)
        return Tokenized(ids=ids, pieces=self._vocabulary.pieces(ids))

    def detokenize(self, question: Detokenize) -> Detokenized:
        check_ids(self._vocabulary, question.ids)
        data = b"".join(self._vocabulary.pieces(question.ids))
        return Detokenized(content=data.decode("utf-8", "replace"))


def read_body(data: bytes) -> JsonObject:
    """A JSON object. Raises RequestError for anything else (too deep nesting among it)."""
    body = _json(data)
    if not isinstance(body, dict):
        raise RequestError.invalid("the request must be a JSON object")
    return cast(JsonObject, body)


def _json(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise RequestError.invalid(f"the request is not valid JSON: {error}") from error
