"""What `/props` and `/v1/models` show of a loaded model."""

from schemas.events import Compat
from schemas.rpc import ModelDescription
from services.engine.compat import compat_digest
from services.engine.config import EngineSettings
from services.engine.llama.gguf import Gguf
from services.engine.llama.vocabulary import ftype_name
from services.engine.open_model import AnyVocabulary
from services.engine.templates import Templates, TokenNames


def token_names(vocabulary: AnyVocabulary) -> TokenNames:
    """The texts of the first and last token, as templates need them."""
    return TokenNames(
        bos=_text(vocabulary, vocabulary.bos),
        eos=_text(vocabulary, vocabulary.eos),
        adds_bos=vocabulary.adds_bos,
        adds_eos=vocabulary.adds_eos,
    )


def describe_model(
    settings: EngineSettings,
    vocabulary: AnyVocabulary,
    header: Gguf,
    templates: Templates,
    compat: Compat,
) -> ModelDescription:
    """Everything known without weights. n_bytes is of the tensors, as llama.cpp counts."""
    tokens = token_names(vocabulary)
    return ModelDescription(
        path=settings.model_path,
        name=settings.model_name,
        aliases=settings.aliases,
        chat_template=templates.source,
        bos_token=tokens.bos,
        eos_token=tokens.eos,
        build=compat.build,
        n_slots=settings.n_slots,
        n_ctx=compat.n_ctx,
        n_ctx_train=header.n_ctx_train,
        n_vocab=vocabulary.n_vocab,
        n_embd=header.n_embd,
        n_params=vocabulary.n_params,
        n_bytes=vocabulary.n_bytes,
        vocab_type=vocabulary.vocab_type,
        ftype=ftype_name(header.number("general.file_type")),
        params=settings.defaults,
        chat_template_caps=templates.caps,
        compat=compat_digest(compat),
    )


def _text(vocabulary: AnyVocabulary, token: int | None) -> str:
    return "" if token is None else vocabulary.piece(token).decode("utf-8", "replace")
