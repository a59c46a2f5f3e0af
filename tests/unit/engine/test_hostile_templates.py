"""What a chat template may not do: refuse politely, never take the machine or the process."""

import time

import pytest

from services.engine import template_bounds
from tests.support.templates import refusal


def test_a_template_may_refuse() -> None:
    assert "only users" in str(refusal("{{ raise_exception('only users') }}"))


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ self.__init__.__globals__ }}x{{ (self.__init__.__globals__)() }}",
        "{{ messages.clear() }}",
        "{{ '%s'.format.__self__.__class__() }}",
        "{{ nothing() }}",
        "{{ 1 + 'a' }}",
        "{{ 1 // 0 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
    ],
)
def test_a_template_that_fails_is_the_requests_problem(source: str) -> None:
    refusal(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{{ 'a' * 10000000000 }}",
        "{{ [1] * 10000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}" + "{% set n.s = n.s + n.s %}" * 40,
        "{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}" + "{% set n.s = n.s ~ n.s %}" * 40,
        "{% set n = namespace(s=[1, 2, 3]) %}" + "{% set n.s = n.s + n.s %}" * 40,
        "{% set n = namespace(i=9) %}" + "{% set n.i = n.i * n.i %}" * 60,
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (10000000000, 1) }}",
        "{{ '%10000000000d'|format(1) }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 10000000000) }}",
        "{{ 'a'.ljust(10000000000) }}",
        "{{ 'a'|center(10000000000) }}",
        "{{ 'a'|indent(10000000000, first=true) }}",
        "{{ [1]|tojson(indent=10000000000) }}",
        "{% set s = 'a' * 60000 %}{{ s.replace('a', s) }}",
        "{% set s = 'a' * 60000 %}{{ s|replace('a', s) }}",
        "{% set s = 'a' * 60000 %}{{ s.join(s) }}",
        "{% set s = 'a' * 60000 %}{{ range(90000)|join(s) }}",
        "{% set s = 'a' * 60000 %}{% for i in range(90000) %}{{ s }}{% endfor %}",
        "{{ lipsum(n=100000000) }}",
        "{{ range(10000000000)|list }}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{% set r = range(90000)|list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% set l = [1] %}{% for i in l %}{{ l.append(1) or '' }}{% endfor %}",
    ],
)
def test_a_template_cannot_take_the_machine(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "MAX_STEPS", 100_000)
    began = time.monotonic()
    refusal(source)
    assert time.monotonic() - began < 20


def test_a_template_cannot_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "MAX_RENDER_S", 0.0)
    assert "too long" in str(refusal("{% for i in range(9) %}{{ i }}{% endfor %}"))
