"""Which chat template is used, and how a request's messages become a prompt.

Choice, as llama-server's: the setting (`--chat-template`, `--chat-template-file`), else the model's
own (its `tool_use` variant when a request has tools), else ChatML. A setting that names a template
built into llama.cpp (chatml, llama3 …) stands for it. With Jinja off (`--no-jinja`), and for such
names, llama.cpp's own renderings are used: they take roles and texts only.

Rendering takes up to `template_bounds.MAX_RENDER_S`; call it from a worker thread. Thread-safe.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, cast

from jinja2 import Template, TemplateError

from schemas.errors import RequestError
from schemas.output_format import OutputFormat
from services.engine.chat_request import ChatRequest, read_chat
from services.engine.errors import TemplateUnusable
from services.engine.messages import JsonObject, for_template, text_of
from services.engine.output_format.derive import Derived, derive
from services.engine.output_format.generic import with_instructions
from services.engine.output_format.history import opening, reopening, with_ids, with_thoughts
from services.engine.quirks import quirk_of
from services.engine.sandbox import ChatEnvironment, clock_of, render_bounded
from services.engine.template_bounds import budget
from services.engine.template_caps import Caps, preserve_reasoning, probe, reasoning_effort

PARTS_GO_ON = "\n\n"
"""Between the parts of an answer that is continued; in a full turn a newline (llama-server)."""
CHATML = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' -}}
{% endif %}
"""
_MAY_THINK = re.compile(r"[<|\[]\w*think", re.IGNORECASE)

HAS_CHANNELS = "<|channel|>"

RenderNamed = Callable[[str, list[tuple[str, str]], bool], str | None]
"""llama.cpp's rendering: template, (role, text) pairs, opens_answer → prompt; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A prompt. generation_prompt: its end, with which the answer begins. is_continuation: the
    prompt ends with the beginning of the answer, taken from the last message. chat, known: what was
    asked, and what the model writes; None for llama.cpp's own renderings. answer: the end of the
    prompt that belongs to the answer. has_parallel_calls: the template takes several calls at once."""

    prompt: str
    generation_prompt: str = ""
    is_continuation: bool = False
    chat: ChatRequest | None = None
    known: OutputFormat | None = None
    answer: str = ""
    has_parallel_calls: bool = True

    @property
    def think_tags(self) -> tuple[str, str] | None:
        """What the model writes before and after thoughts, None where it has none."""
        known = self.known
        return (known.thought_start, known.thought_end) if known and known.thought_end else None


@dataclass(frozen=True, kw_only=True)
class TokenNames:
    """Texts of the first and last token, and whether the tokenizer adds them itself."""

    bos: str = ""
    eos: str = ""
    adds_bos: bool = False
    adds_eos: bool = False


class JinjaTemplate:
    """One parsed template. Raises TemplateUnusable when it does not parse."""

    def __init__(self, source: str, tokens: TokenNames) -> None:
        self.source = source
        self._quirk = quirk_of(source)
        self._tokens = tokens
        try:
            self.caps = probe(source)
            self._template: Template = ChatEnvironment().from_string(source)
        except (TemplateError, RecursionError) as error:
            raise TemplateUnusable(f"the chat template does not parse: {error}") from error

    def apply(self, chat: ChatRequest, created_at_ms: int) -> Rendered:
        """The prompt of a chat. Raises RequestError when the template refuses or fails."""
        turns, begun = chat.turns_and_answer()
        variables = self._variables(chat, created_at_ms) | {"messages": self._shaped(turns, chat)}
        known = self.derived.format
        with budget():
            closed = self._render(variables)
            opened = self._opened(variables)
        start = opening(known, opened[_common_prefix(closed, opened) :])
        if begun is not None:
            start = reopening(
                known,
                start.text,
                thoughts=begun.get("reasoning_content", ""),
                content=text_of(begun, PARTS_GO_ON),
                is_thinking=chat.continues_reasoning,
                has_bare_end=self._quirk.has_bare_end,
            )
            opened = closed + start.text
        return Rendered(
            prompt=opened if chat.add_generation_prompt or begun is not None else closed,
            generation_prompt=start.text,
            is_continuation=begun is not None,
            chat=chat,
            known=known,
            answer=start.answer,
            has_parallel_calls=self.caps.supports_parallel_tool_calls,
        )

    def _opened(self, variables: JsonObject) -> str:
        """The prompt with the beginning of an answer."""
        prompt = self._render(variables | {"add_generation_prompt": True})
        is_closed = bool(self._quirk.turn_end) and prompt.endswith(self._quirk.turn_end)
        return prompt + self._quirk.turn if is_closed else prompt

    def _shaped(self, messages: list[JsonObject], chat: ChatRequest) -> list[JsonObject]:
        """The messages as this template takes them."""
        if chat.tools and chat.tool_choice != "none" and self.derived.format.calls is None:
            messages = with_instructions(messages, chat.tools)
        messages = self._quirk.before(messages)
        shaped = for_template(messages, self.caps, keeps_developer=HAS_CHANNELS in self.source)
        shaped = self._quirk.after(shaped)
        shaped = with_thoughts(shaped, self.derived.thought_field)
        calls = self.derived.format.calls
        shaped = with_ids(shaped, calls.id_chars if calls else 0)
        if HAS_CHANNELS in self.source:
            shaped = [_thoughts_or_content(message) for message in shaped]
        return shaped

    def _variables(self, chat: ChatRequest, created_at_ms: int) -> JsonObject:
        now = clock_of(created_at_ms)
        variables: JsonObject = {
            "bos_token": self._tokens.bos,
            "eos_token": self._tokens.eos,
            "enable_thinking": self._thinks and chat.enable_thinking,
            "strftime_now": now,
            "datetime": now("%b %d %Y"),
            "date_string": now("%d %b %Y"),
        }
        if chat.tools:
            variables["tools"] = chat.tools
        if chat.schema is not None and self._quirk.takes_schema:
            variables["response_format"] = chat.schema
        variables.update(chat.kwargs)
        return variables | _reasoning_variables(variables)

    @cached_property
    def derived(self) -> Derived:
        """What its model writes. Renders some tens of sample chats the first time (30–100 ms)."""
        with budget():
            return derive(self.source, self._sample, self._sampled)

    def _sample(self, variables: JsonObject) -> str | None:
        common: JsonObject = {"bos_token": self._tokens.bos, "eos_token": self._tokens.eos}
        common["strftime_now"] = clock_of(0)
        try:
            return render_bounded(self._template, common | variables)
        except Exception:  # a template may fail in any way that Python can
            return None

    def _sampled(self, messages: list[JsonObject]) -> list[JsonObject]:
        return for_template(messages, self.caps, keeps_developer=True)

    @property
    def _thinks(self) -> bool:
        return bool(self.derived.format.thought_end) or _MAY_THINK.search(self.source) is not None

    def _render(self, variables: JsonObject) -> str:
        try:
            text = render_bounded(self._template, variables)
        except Exception as error:  # a template may fail in any way that Python can
            raise RequestError.invalid(
                f"The chat template cannot render these messages: {error}", "messages"
            ) from error
        return self._without_added(text)

    def _without_added(self, text: str) -> str:
        """Without the tokens that the tokenizer adds itself."""
        if self._tokens.adds_bos and self._tokens.bos:
            text = text.removeprefix(self._tokens.bos)
        if self._tokens.adds_eos and self._tokens.eos:
            text = text.removesuffix(self._tokens.eos)
        return text


class NamedTemplate:
    """One of llama.cpp's own renderings, found by name or by words in a Jinja source."""

    caps = Caps(supports_tools=False, supports_tool_calls=False, supports_parallel_tool_calls=False)

    def __init__(self, source: str, render: RenderNamed) -> None:
        self.source = source
        self._render = render

    def apply(self, chat: ChatRequest, created_at_ms: int) -> Rendered:
        """The prompt of a chat; a last assistant message is a full turn, as in llama-server.

        Raises RequestError for tools and for a template that llama.cpp does not know.
        """
        if chat.tools or chat.tool_choice != "auto":
            name = "tools" if chat.tools else "tool_choice"
            raise RequestError.invalid(f"{name} param requires --jinja flag", name)
        pairs = [(message["role"], text_of(message)) for message in chat.messages]
        prompt = self._render(self.source, pairs, chat.add_generation_prompt)
        if prompt is None:
            raise RequestError.invalid("this custom template is not supported, try using --jinja")
        return Rendered(prompt=prompt)


class Templates:
    """The templates of one engine. Raises TemplateUnusable when the chosen one does not parse.

    chosen: the setting, empty for the model's own. of_model: the GGUF's, "" and "tool_use".
    named: names that render_named knows. prefill_assistant: a last assistant message is continued.
    kwargs: variables that a request does not set.
    """

    def __init__(
        self,
        *,
        chosen: str,
        of_model: Mapping[str, str],
        tokens: TokenNames,
        is_jinja: bool,
        named: tuple[str, ...],
        render_named: RenderNamed,
        prefill_assistant: bool = True,
        kwargs: JsonObject | None = None,
    ) -> None:
        self._prefill_assistant = prefill_assistant
        self._kwargs = kwargs or {}
        source = chosen or of_model.get("") or of_model.get("tool_use") or CHATML
        if not is_jinja or (source in named and source != "chatml"):
            self._default: JinjaTemplate | NamedTemplate = NamedTemplate(source, render_named)
        else:
            self._default = JinjaTemplate(CHATML if source == "chatml" else source, tokens)
        self._tool_use: JinjaTemplate | None = None
        if is_jinja and not chosen and (tool_source := of_model.get("tool_use")):
            self._tool_use = _lenient(tool_source, tokens)

    @property
    def source(self) -> str:
        """As shown by `/props`."""
        return self._default.source

    @property
    def caps(self) -> dict[str, bool]:
        return (self._tool_use or self._default).caps.as_dict()

    @property
    def digest(self) -> str:
        """sha256 in hex over everything that decides how a chat is rendered."""
        kind = type(self._default).__name__
        tool_use = self._tool_use.source if self._tool_use else ""
        kwargs = str(sorted(self._kwargs.items())) if self._kwargs else ""
        parts = (kind, self._default.source, tool_use, str(self._prefill_assistant) + kwargs)
        return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def warm_up(self) -> None:
        """Find out now what the models of these templates write, and not in the first request."""
        for template in (self._default, self._tool_use):
            if isinstance(template, JinjaTemplate):
                _ = template.derived

    def apply(self, body: JsonObject, created_at_ms: int) -> Rendered:
        """Render the `messages` of a request. Blocks (see above). Raises RequestError."""
        given = body.get("chat_template_kwargs")
        if self._kwargs and (given is None or isinstance(given, dict)):
            merged = self._kwargs | cast(JsonObject, given or {})
            body = body | {"chat_template_kwargs": merged}
        chat = read_chat(body, prefill_assistant=self._prefill_assistant)
        template = self._tool_use if chat.tools and self._tool_use else self._default
        return template.apply(chat, created_at_ms)


def _thoughts_or_content(message: JsonObject) -> JsonObject:
    """Templates with channels take no content beside thoughts in a message that calls tools."""
    if not (message.get("tool_calls") and message.get("reasoning_content")):
        return message
    return {name: value for name, value in message.items() if name != "content"}


def _lenient(source: str, tokens: TokenNames) -> JinjaTemplate | None:
    """The model's second template is ignored when it does not parse, as in llama-server."""
    try:
        return JinjaTemplate(source, tokens)
    except TemplateUnusable:
        return None


def _reasoning_variables(variables: JsonObject) -> JsonObject:
    found: dict[str, Any] = {}
    if isinstance(keeps := variables.get("preserve_reasoning"), bool):
        found.update(preserve_reasoning(is_kept=keeps))
    if isinstance(level := variables.get("reasoning_effort"), str) and level:
        found.update(reasoning_effort(level))
    return found


def _common_prefix(first: str, second: str) -> int:
    """Length of the part that both begin with, found by halving: slices compare at C speed."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
