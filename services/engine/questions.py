"""Everything that an engine answers without its weights: prompts, templates, its own description."""

import asyncio
import json

from schemas.errors import RequestError
from schemas.events import Compat
from schemas.rpc import (
    ApplyTemplate,
    DescribeModel,
    Detokenize,
    EngineAnswer,
    ModelDescription,
    Prepare,
    Prepared,
    Tokenize,
)
from services.engine.compat import make_compat
from services.engine.config import EngineSettings
from services.engine.constraints import check_grammar
from services.engine.context_size import slot_context
from services.engine.describe import describe_model, token_names
from services.engine.errors import ModelNotLoadable
from services.engine.llama import legacy_template
from services.engine.llama.gguf import Gguf
from services.engine.open_model import AnyVocabulary, digest_of, open_vocabulary
from services.engine.prepare import Preparer
from services.engine.templates import Templates

Question = ApplyTemplate | Tokenize | Detokenize | DescribeModel


class Questions:
    """Answers questions about one model. compat: what another engine must share to take over."""

    def __init__(self, preparer: Preparer, description: ModelDescription, compat: Compat) -> None:
        self._preparer = preparer
        self._description = description
        self.compat = compat

    async def answer(self, question: Question) -> EngineAnswer:
        """Event-loop thread. Raises RequestError."""
        if isinstance(question, DescribeModel):
            return self._description
        return await self._preparer.answer(question)

    async def prepare(self, question: Prepare) -> Prepared:
        """Event-loop thread. Raises RequestError."""
        return await self._preparer.prepare_soon(question)

    def close(self) -> None:
        self._preparer.close()


async def load_questions(settings: EngineSettings, build: str) -> Questions:
    """Read vocabulary, templates and digests of the model, in a worker thread.

    Raises ModelNotLoadable.
    """
    return await asyncio.to_thread(_load, settings, build)


def _load(settings: EngineSettings, build: str) -> Questions:
    header, vocabulary = open_vocabulary(settings)
    _check_biases(settings, vocabulary.n_vocab)
    _check_grammar(settings, vocabulary)
    templates = Templates(
        chosen=settings.template,
        of_model=_templates_of(header),
        tokens=token_names(vocabulary),
        is_jinja=settings.is_jinja,
        named=legacy_template.builtin_names(),
        render_named=legacy_template.render,
        prefill_assistant=settings.prefill_assistant,
        kwargs=json.loads(settings.template_kwargs),
    )
    _, n_ctx_slot = slot_context(settings, header.n_ctx_train)
    compat = make_compat(
        model=digest_of(settings, header),
        template=templates.digest,
        n_ctx=n_ctx_slot,
        build=build,
    )
    preparer = Preparer(settings, vocabulary, templates, n_ctx=n_ctx_slot)
    description = describe_model(settings, vocabulary, header, templates, compat)
    return Questions(preparer, description, compat)


def _check_biases(settings: EngineSettings, n_vocab: int) -> None:
    for token, _ in settings.defaults.sampling.logit_bias:
        if not 0 <= token < n_vocab:
            raise ModelNotLoadable(f"--logit-bias: the model has no token {token}")


def _check_grammar(settings: EngineSettings, vocabulary: AnyVocabulary) -> None:
    """Only here it is known which tokens the grammar may name."""
    grammar = settings.defaults.sampling.grammar
    if not grammar:
        return
    try:
        check_grammar("--grammar", grammar, vocabulary)
    except RequestError as error:
        raise ModelNotLoadable(f"{error}") from error


def _templates_of(header: Gguf) -> dict[str, str]:
    key = "tokenizer.chat_template"
    return {"": header.text(key), "tool_use": header.text(f"{key}.tool_use")}
