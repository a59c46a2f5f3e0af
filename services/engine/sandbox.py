"""A Jinja environment for chat templates, which come with model files and are not trusted.

Every loop step, call and operator is counted, and what could grow without bound is checked first
(template_bounds). A template that breaks a bound raises SecurityError, like one that reaches for
Python's internals. Any thread.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from jinja2 import ChainableUndefined, Template, Undefined, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from services.engine.template_bounds import (
    budget,
    check_binop,
    check_call,
    check_chars,
    install,
    step,
)


class RaisedByTemplate(TemplateError):
    """The template called `raise_exception`: it does not accept these messages."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """As transformers and llama.cpp set Jinja up: blocks trimmed, loop controls, `tojson` without
    HTML escapes, `raise_exception`, `strftime_now`; missing values chain."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=ChainableUndefined,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
        )
        install(cast("dict[str, Any]", self.filters))
        cast("dict[str, Any]", self.globals).update(raise_exception=raise_exception)
        self.globals.pop("lipsum")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _instrument(template)
        return template

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Jinja's call of anything; named so that keyword arguments cannot collide."""
        step()
        check_call(__obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Lists may change (some models' templates do so, llama.cpp lets them), nothing else may change."""
        return (isinstance(obj, list) and attr in {"append", "pop"}) or super().is_safe_attribute(
            obj, attr, value
        )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        step()
        check_binop(operator, left, right)
        if operator == "+":
            left, right = _as_addends(left, right)
        return super().call_binop(context, operator, left, right)


def render_bounded(template: Template, variables: dict[str, Any]) -> str:
    """Render a template of a ChatEnvironment. Raises what Jinja and the template raise."""
    parts: list[str] = []
    n_chars = 0
    with budget():
        for part in template.generate(variables):
            n_chars += len(part)
            check_chars(n_chars)
            parts.append(part)
    return "".join(parts)


def _as_addends(left: Any, right: Any) -> tuple[Any, Any]:
    """Beside a text, nothing and missing values count as empty texts, as in llama.cpp."""
    if isinstance(left, str) and (right is None or isinstance(right, Undefined)):
        return left, ""
    if isinstance(right, str) and (left is None or isinstance(left, Undefined)):
        return "", right
    return left, right


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks an answer for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012  Jinja's interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _instrument(template: nodes.Template) -> None:
    """Count the steps of every loop, bound every `~`."""
    for loop in list(template.find_all(nodes.For)):
        loop.iter = _filtered(loop.iter, "_counted")
    _bound_concat(template)


def _bound_concat(node: nodes.Node) -> None:
    for field, value in list(node.iter_fields()):
        if isinstance(value, list):
            setattr(node, field, [_concat_node(item) for item in cast("list[object]", value)])
        else:
            setattr(node, field, _concat_node(value))


def _concat_node(value: object) -> object:
    if not isinstance(value, nodes.Node):
        return value
    _bound_concat(value)
    if not isinstance(value, nodes.Concat):
        return value
    return _filtered(nodes.List(value.nodes, lineno=value.lineno), "_concat")


def _filtered(expression: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(
        cast("nodes.Expr", expression), name, [], [], None, None, lineno=expression.lineno
    )


def raise_exception(message: object = "") -> None:
    """The template refuses its input. Raises RaisedByTemplate."""
    raise RaisedByTemplate(str(message))


def clock_of(created_at_ms: int) -> Callable[[str], str]:
    """`strftime_now` at a request's creation, in this machine's time zone (as llama-server's).

    Renderings are not repeated elsewhere: their token ids stand in the log.
    """
    now = datetime.fromtimestamp(created_at_ms / 1000).astimezone()
    return now.strftime
