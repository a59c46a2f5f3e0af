"""The prompts of a completion: texts, token ids, mixtures and lists of them, as token ids.

Follows llama-server's `prompt`. Tokenizing takes time: call it from a worker thread.
"""

from typing import Any, Protocol, cast

from schemas.errors import EXCEED_CONTEXT_SIZE, Problem, RequestError
from schemas.events import Prompt

EXACT_BYTES = 32 * 1024
"""Texts up to this are counted exactly, even those that cannot fit: the tokenizer's time grows with
the square of the number of control tokens, and of characters that a vocabulary lacks."""


class PromptVocabulary(Protocol):
    @property
    def n_vocab(self) -> int: ...
    @property
    def markers(self) -> tuple[str, ...]: ...
    @property
    def longest_piece_bytes(self) -> int: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]: ...
    def detokenize(self, ids: tuple[int, ...]) -> str: ...


class PromptReader:
    """Turns `prompt` values into ids for slots of `n_ctx` tokens. Thread-safe."""

    def __init__(self, vocabulary: PromptVocabulary, n_ctx: int) -> None:
        self._vocabulary = vocabulary
        self._n_ctx = n_ctx

    def read(self, value: object) -> tuple[Prompt, ...]:
        """All prompts of a request, each checked against the context. Raises RequestError."""
        prompts = tuple(self._one(item) for item in split_prompts(value))
        if not prompts:
            raise _wrong('"prompt" must not be empty')
        return prompts

    def of_text(self, text: str) -> Prompt:
        """The prompt of one text: special tokens added, names of control tokens parsed."""
        return self._prompt(self._text_ids(text, is_first=True))

    def of_ids(self, ids: tuple[int, ...]) -> Prompt:
        """The prompt of ids of the vocabulary."""
        return self._prompt(ids)

    def _one(self, value: object) -> Prompt:
        if isinstance(value, str):
            return self.of_text(value)
        if isinstance(value, dict):
            return self._one_of_object(cast("dict[str, Any]", value))
        if isinstance(value, list) and value:
            return self._prompt(self._mixed(cast("list[object]", value)))
        if isinstance(value, list):
            return self._prompt(())
        raise _wrong(
            '"prompt" elements must be a string, a list of tokens, a JSON object containing a '
            "prompt string, or a list of mixed strings & tokens."
        )

    def _one_of_object(self, value: dict[str, Any]) -> Prompt:
        text = value.get("prompt_string")
        if value.get("multimodal_data"):
            raise _wrong(
                "Multimodal data provided, but model does not support multimodal requests."
            )
        if not isinstance(text, str):
            raise _wrong('"prompt" objects must have a string as "prompt_string"')
        return self.of_text(text)

    def _mixed(self, items: list[object]) -> tuple[int, ...]:
        if len(items) > 16 * self._n_ctx:
            raise _too_long(len(items), self._n_ctx)
        return mixed_ids(self._vocabulary, items, self._text_ids)

    def _text_ids(self, text: str, *, is_first: bool) -> tuple[int, ...]:
        self._refuse_hopeless(text)
        return self._vocabulary.tokenize(text, add_special=is_first, parse_special=True)

    def _refuse_hopeless(self, text: str) -> None:
        """A text that cannot fit is refused by what it must have, where counting would take seconds."""
        if len(text) <= EXACT_BYTES:
            return
        n_markers = sum(text.count(name) for name in self._vocabulary.markers)
        at_least = max(n_markers, len(text) // self._vocabulary.longest_piece_bytes)
        if at_least >= self._n_ctx:
            raise _too_long(at_least, self._n_ctx, "at least ")

    def _prompt(self, ids: tuple[int, ...]) -> Prompt:
        if len(ids) >= self._n_ctx:
            raise _too_long(len(ids), self._n_ctx)
        return Prompt(ids=ids, text=self._vocabulary.detokenize(ids))


def split_prompts(value: object) -> list[object]:
    """The prompts in a `prompt`: a list without token ids is a list of prompts."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [items] if any(_is_id(item) for item in items) else items
    return [value]


class TextIds(Protocol):
    def __call__(self, text: str, *, is_first: bool) -> tuple[int, ...]: ...


def mixed_ids(
    vocabulary: PromptVocabulary, items: list[object], text_ids: TextIds, name: str = "prompt"
) -> tuple[int, ...]:
    """Ids of a list of texts and ids; special tokens are added when it begins with a text.

    Raises RequestError for other items and for ids outside the vocabulary.
    """
    ids: list[int] = []
    for number, item in enumerate(items):
        if isinstance(item, str):
            ids.extend(text_ids(item, is_first=number == 0))
        elif _is_id(item):
            ids.append(cast("int", item))
        else:
            raise _wrong("a list of mixed strings & tokens may hold nothing else", name)
    check_ids(vocabulary, ids, name)
    return tuple(ids)


def check_ids(
    vocabulary: PromptVocabulary, ids: "list[int] | tuple[int, ...]", name: str = "prompt"
) -> None:
    """Raise RequestError unless every id is in the vocabulary."""
    if ids and not (min(ids) >= 0 and max(ids) < vocabulary.n_vocab):
        raise _wrong(
            f"Prompt contains invalid tokens: ids must be between 0 and {vocabulary.n_vocab - 1}",
            name,
        )


def _is_id(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _wrong(message: str, name: str = "prompt") -> RequestError:
    return RequestError.invalid(message, name)


def _too_long(n_tokens: int, n_ctx: int, how_many: str = "") -> RequestError:
    return RequestError(
        Problem(
            code=EXCEED_CONTEXT_SIZE,
            message=f"request ({how_many}{n_tokens} tokens) exceeds the available context size "
            f"({n_ctx} tokens), try increasing it",
            n_prompt_tokens=n_tokens,
            n_ctx=n_ctx,
        )
    )
