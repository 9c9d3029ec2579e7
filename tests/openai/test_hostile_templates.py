"""No template makes more than it may, or keeps its thread in C for longer than a moment."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from supervisord_llm.openai import bounds
from supervisord_llm.openai.templates import ChatTemplate, TemplateBroken
from tests.openai import hostile

NOW = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)

SECONDS = 20.0
"""Far more than any of them takes on a machine that is busy, and far less than a year."""

MORE_MEMORY = 1 << 30
"""What the process may have more than before; each of them wants ten times that, or more."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A limit to the address space, so that a template that is not stopped fails and no more."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - it is no file
        used = int(statm.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, before[1]))
    began = time.monotonic()
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert time.monotonic() - began < SECONDS


def refused(source: str) -> str:
    """Why a template is refused."""
    with pytest.raises(TemplateBroken) as caught:
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}], now=NOW)
    return caught.value.reason


@pytest.mark.parametrize("name", hostile.TOO_LONG)
def test_nothing_becomes_too_long(name: str) -> None:
    """However it is put together, and whether or not it is ever written."""
    assert "it makes too much text, or too long lists" == refused(hostile.TOO_LONG[name])


@pytest.mark.parametrize("name", hostile.TOO_WIDE)
def test_no_field_becomes_too_wide(name: str) -> None:
    """A width is a number, and costs nothing to write."""
    assert "it asks for a width of more than 1000" == refused(hostile.TOO_WIDE[name])


@pytest.mark.parametrize("name", hostile.TOO_LARGE)
def test_no_number_becomes_too_large(name: str) -> None:
    """Arithmetic with a million digits takes minutes, and cannot be interrupted."""
    assert "more than 4096 bits" in refused(hostile.TOO_LARGE[name])


@pytest.mark.parametrize("name", hostile.FORBIDDEN)
def test_what_no_template_needs_is_not_there(name: str) -> None:
    """It is told by its name."""
    source, reason = hostile.FORBIDDEN[name]
    assert reason in refused(source)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'%5.1f|%-3s|%%' % (1.25, 'a')", "  1.2|a  |%"),
        ("'%(a)s!' % {'a': 'b'}", "b!"),
        ("'%s' % 'a'", "a"),
        ("7 % 4", "3"),
        ("'{} {b:>3}'.format('a', b='c')", "a   c"),
        ("'{0!r}'.format('a')", "'a'"),
        ("'{a}'.format_map({'a': 1})", "1"),
        ("'%s-%s'|format('a', 'b')", "a-b"),
        ("'%(a)s'|format(a='b')", "b"),
        ("'a-b-c'.replace('-', '+', 1)", "a+b-c"),
        ("'a-b-c'|replace('-', '+', 1)", "a+b-c"),
        ("', '.join(['a', 'b'])", "a, b"),
        ("[1, 2]|join('-')", "1-2"),
        ("[{'n': 1}, {'n': 2}]|join('-', attribute='n')", "1-2"),
        ("[{'n': 1}, {'n': 2}]|sum(attribute='n')", "3"),
        ("[[1], [2]]|sum(start=[])", "[1, 2]"),
        ("'a\nb'|indent(2)", "a\n  b"),
        ("'a\nb'|indent('> ', first=true)", "> a\n> b"),
        ("'a'|center(3) ~ '|' ~ 'a'.ljust(3) ~ '|' ~ '7'.zfill(2)", " a |a  |07"),
        ("'a\tb'.expandtabs(2)", "a b"),
        ("2.5|round ~ 2.25|round(1, 'floor')", "2.02.2"),
        ("[1, 2, 3]|batch(2)|list", "[[1, 2], [3]]"),
        ("[1, 2, 3]|slice(2)|list", "[[1, 2], [3]]"),
        ("[3, 1]|sort|reverse|list", "[3, 1]"),
        ("{'b': 1, 'a': 2}|dictsort", "[('a', 2), ('b', 1)]"),
        ("{'a': 1}|items|list", "[('a', 1)]"),
        ("'<b>'|e ~ '<b>'|safe", "&lt;b&gt;<b>"),
        ("'a b c'|truncate(3, true, '', 0) ~ 'a b'|wordcount", "a b2"),
        ("[1, 2, 2]|unique|map('string')|list", "['1', '2']"),
        ("[{'a': 1}, {}]|selectattr('a', 'defined')|list|length", "1"),
        ("['b', 'a']|min ~ [1, 2]|max ~ [1, 2]|first ~ [1, 2]|last", "a212"),
        ("2 ** 10 - 24 / 2 // 1 + 1 * 3", "1015.0"),
        ("2 ** -1 + 1.5", "2.0"),
        ("(1, 2)[1:] + (3,)", "(2, 3)"),
        ("[0] * 3 + [1][:1]", "[0, 0, 0, 1]"),
        ("'ab'[::-1]", "ba"),
        ("namespace(a=1)", "<Namespace {'a': 1}>"),
        ("none ~ true ~ 1.5 ~ nothing", "NoneTrue1.5"),
        ("range(3)|list", "[0, 1, 2]"),
        ("'a,b'.split(',')", "['a', 'b']"),
    ],
)
def test_what_templates_do_need_is_as_it_was(expression: str, expected: str) -> None:
    """Measures change nothing of what comes out."""
    source = "{{ " + expression + " }}"
    assert expected == ChatTemplate(source).render([], now=NOW)


def test_a_long_conversation_is_not_too_much() -> None:
    """Two thousand turns that are gathered one by one, as some templates do, and two megabytes."""
    source = (
        "{% set ns = namespace(turns=[], text='') %}"
        "{% for m in messages %}{% set ns.turns = ns.turns + [m] %}{% endfor %}"
        "{% for m in ns.turns[1:] %}{{ m.content|trim ~ '\n' }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "x" * 1000}] * 2000
    assert 1999 * 1001 == len(ChatTemplate(source).render(messages, now=NOW))


def test_the_bounds_are_far_above_a_prompt() -> None:
    """Whoever changes one of them has to think of the others."""
    assert bounds.MAX_VALUE >= 2 * (4 << 20)
    assert bounds.MAX_WORK >= 16 * bounds.MAX_VALUE
