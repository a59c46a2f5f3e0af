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
from services.engine.chat_request import ChatRequest, read_chat
from services.engine.errors import TemplateUnusable
from services.engine.messages import JsonObject, for_template, text_of
from services.engine.sandbox import ChatEnvironment, clock_of, render_bounded
from services.engine.template_bounds import budget
from services.engine.template_caps import Caps, preserve_reasoning, probe, reasoning_effort

CHATML = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' -}}
{% endif %}
"""
_THINK = re.compile(r"[<\[][^\s<>\[\]]*think[^\s<>\[\]]*[>\]]\s*$", re.IGNORECASE)
_MAY_THINK = re.compile(r"[<|\[]\w*think", re.IGNORECASE)
_THOUGHT, _SAID = "REASONING_MARKER", "CONTENT_MARKER"

RenderNamed = Callable[[str, list[tuple[str, str]], bool], str | None]
"""llama.cpp's rendering: template, (role, text) pairs, opens_answer → prompt; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A prompt. generation_prompt: its end, with which the answer begins. is_continuation: the
    prompt ends with the beginning of the answer, taken from the last message."""

    prompt: str
    generation_prompt: str = ""
    is_continuation: bool = False


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
        self._tokens = tokens
        try:
            self.caps = probe(source)
            self._template: Template = ChatEnvironment().from_string(source)
        except (TemplateError, RecursionError) as error:
            raise TemplateUnusable(f"the chat template does not parse: {error}") from error

    def apply(self, chat: ChatRequest, created_at_ms: int) -> Rendered:
        """The prompt of a chat. Raises RequestError when the template refuses or fails."""
        turns, answer = chat.turns_and_answer()
        messages = for_template(turns, self.caps, keeps_developer="<|channel|>" in self.source)
        variables = self._variables(chat, created_at_ms) | {"messages": messages}
        with budget():
            closed = self._render(variables)
            opened = self._render(variables | {"add_generation_prompt": True})
        generation_prompt = opened[_common_prefix(closed, opened) :]
        if answer is not None:
            generation_prompt = self._reopened(generation_prompt, answer, chat)
            return Rendered(
                prompt=closed + generation_prompt,
                generation_prompt=generation_prompt,
                is_continuation=True,
            )
        prompt = opened if chat.add_generation_prompt else closed
        return Rendered(prompt=prompt, generation_prompt=generation_prompt)

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
        variables.update(chat.kwargs)
        return variables | _reasoning_variables(variables)

    @cached_property
    def _think_tags(self) -> tuple[str, str] | None:
        """What this template writes before and after thoughts, found by rendering some."""
        asked = {"role": "user", "content": "?"}
        answer = {"role": "assistant", "content": _SAID, "reasoning_content": _THOUGHT}
        now = clock_of(0)
        variables: JsonObject = {
            "strftime_now": now,
            "messages": [asked, answer],
            "enable_thinking": True,
        }
        try:
            text = render_bounded(self._template, variables)
        except Exception:  # a template may fail in any way that Python can
            text = ""
        before, _, after = text.partition(_THOUGHT)
        found = _THINK.search(before)
        if found and _SAID in after:
            return found.group(), after.partition(_SAID)[0]
        return ("<think>", "</think>") if "<think>" in self.source else None

    @property
    def _thinks(self) -> bool:
        return self._think_tags is not None or _MAY_THINK.search(self.source) is not None

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

    def _reopened(self, generation_prompt: str, answer: JsonObject, chat: ChatRequest) -> str:
        """The beginning of the answer, up to where the model goes on."""
        text = generation_prompt
        if self._think_tags is not None:
            start, end = self._think_tags
            text = text.partition(start.strip())[0] + start + answer.get("reasoning_content", "")
            text += "" if chat.continues_reasoning else end
        return text if chat.continues_reasoning else text + text_of(answer)


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

    def apply(self, body: JsonObject, created_at_ms: int) -> Rendered:
        """Render the `messages` of a request. Blocks (see above). Raises RequestError."""
        given = body.get("chat_template_kwargs")
        if self._kwargs and (given is None or isinstance(given, dict)):
            merged = self._kwargs | cast(JsonObject, given or {})
            body = body | {"chat_template_kwargs": merged}
        chat = read_chat(body, prefill_assistant=self._prefill_assistant)
        template = self._tool_use if chat.tools and self._tool_use else self._default
        return template.apply(chat, created_at_ms)


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
