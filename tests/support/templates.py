"""Chat templates for tests: what they are given and how they are rendered."""

from typing import Any

import pytest

from schemas.errors import INVALID_REQUEST, RequestError
from services.engine.templates import Templates, TokenNames

AT_MS = 1_700_000_000_000
USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be good"}
ANSWER = {"role": "assistant", "content": "Well, "}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BOS = TokenNames(bos="<s>", eos="</s>", adds_bos=True, adds_eos=False)
LINES = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
QWEN_LIKE = (
    "{% for m in messages %}[{{ m.role }}]\n"
    "{% if m.role == 'assistant' %}<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}"
    "{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]\n{% endif %}"
)


def fake_named(template: str, pairs: list[tuple[str, str]], opens_answer: bool) -> str | None:
    """A stand-in for llama.cpp's own renderings, which knows one template."""
    if template != "plainchat":
        return None
    return "".join(f"{role}|{text};" for role, text in pairs) + (">" if opens_answer else "")


def templates(chosen: str = "", **changes: Any) -> Templates:
    values: dict[str, Any] = {
        "of_model": {}, "tokens": BOS, "is_jinja": True, "named": ("chatml", "plainchat"),
        "render_named": fake_named,
    }  # fmt: skip
    return Templates(chosen=chosen, **(values | changes))


def render(source: str, body: dict[str, Any] | None = None) -> str:
    return templates(source).apply(body or {"messages": [USER]}, AT_MS).prompt


def refusal(source: str, body: dict[str, Any] | None = None) -> RequestError:
    with pytest.raises(RequestError) as caught:
        render(source, body)
    assert caught.value.problem.code == INVALID_REQUEST
    return caught.value
