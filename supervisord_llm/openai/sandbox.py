"""The environment that chat templates run in: Jinja2's sandbox, with every value measured.

The sandbox keeps a template away from the interpreter and from changing what it was given; `bounds`
says how much it may make. Constants are not folded at compilation, because what is folded would
pass no measure.
"""

# ruff: noqa: N802 - the names of visitors are Jinja2's

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, cast

from jinja2 import TemplateSyntaxError, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

from supervisord_llm.openai import bounds
from supervisord_llm.openai.filters import FILTERS

MAX_CODE = 512 << 10
"""The longest Python that a template may become; its compiler runs without a pause."""

_LINEAR: dict[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha",
        "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isprintable", "isspace",
        "istitle", "isupper", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
        "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
        "strip", "swapcase", "title", "upper",
    }),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
    range: frozenset({"count", "index"}),
    float: frozenset({"is_integer"}),
    int: frozenset({"bit_length"}),
}  # fmt: skip
"""Methods whose results are in proportion to their operands."""


def _justified(method: str) -> Callable[..., str]:
    def justified(subject: str, width: int, *fill: str) -> str:
        bounds.check_width(width)
        return str(getattr(subject, method)(width, *fill))

    return justified


def _expandtabs(subject: str, tabsize: int = 8) -> str:
    bounds.check_width(tabsize)
    bounds.pay(len(subject) + max(0, tabsize) * subject.count("\t"))
    return subject.expandtabs(tabsize)


def _join(separator: str, values: Any) -> str:
    return bounds.joined(values, separator)


_MEASURED: dict[str, Callable[..., str]] = {
    "replace": bounds.replaced,
    "join": _join,
    "expandtabs": _expandtabs,
    **{name: _justified(name) for name in ("center", "ljust", "rjust", "zfill")},
}
"""Methods of text whose results may be out of proportion, and what is called in their place."""


class _Code(CodeGenerator):
    """Generates Python that hands what it makes to the environment."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self._visit_within("environment.joined((", node.nodes, frame, "))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._visit_within("environment.settle([", node.items, frame, "])")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._visit_within("environment.settle((", node.items, frame, "))")
        else:
            super().visit_Tuple(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.settle(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        self.write("environment.settle(" if isinstance(node.arg, nodes.Slice) else "(")
        super().visit_Getitem(node, frame)
        self.write(")")

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        if isinstance(node.value, int) and node.value.bit_length() > bounds.MAX_BITS:
            self.fail(f"a number of more than {bounds.MAX_BITS} bits", node.lineno)
        super().visit_Const(node, frame)

    def visit_ScopedEvalContextModifier(
        self,
        node: nodes.ScopedEvalContextModifier,
        frame: Frame,  # noqa: ARG002 - Jinja2's interface
    ) -> None:
        # It would escape for HTML, with a kind of text that measures nothing.
        self.fail("cannot use 'autoescape': a prompt is no web page", node.lineno)

    def _visit_within(self, before: str, items: list[nodes.Expr], frame: Frame, after: str) -> None:
        self.write(before)
        for item in items:
            self.visit(item, frame)
            self.write(", ")
        self.write(after)


class _Formatter(SandboxedFormatter):
    """``str.format`` of which no field is wide, and all of them together not long."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        bounds.check_spec(format_spec)
        written = format(bounds.text(value) if not format_spec else value, format_spec)
        bounds.pay(len(written))
        return written

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return super().convert_field(bounds.text(value) if conversion else value, conversion)


class _Generation(Extension):
    """``{% generation %}``: marks the assistant's words for training; here its body as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja2's interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pass_context
def _finalize(_context: Context, value: Any) -> str:
    # That it takes the context keeps Jinja2 from writing constants at compilation.
    return bounds.text(value)


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles chat templates and runs them, both inside `bounds.metered` only."""

    code_generator_class = _Code
    intercepted_binops = frozenset(bounds.OPERATIONS)
    concat = staticmethod(bounds.concat)
    joined = staticmethod(bounds.joined)
    settle = staticmethod(bounds.settle)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_finalize,
            extensions=[loopcontrols, _Generation],
        )
        self.filters = dict(FILTERS)
        self.binop_table = dict(bounds.OPERATIONS)
        del self.globals["lipsum"]

    def _compile(self, source: str, filename: str) -> types.CodeType:
        if len(source) > MAX_CODE:
            raise TemplateSyntaxError("the template is too long", lineno=1)
        return super()._compile(source, filename)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls, if it may; raises `TooMuch` if it makes too much."""
        for argument in (*args, *kwargs.values()):
            bounds.weigh(argument)
        method = self._method(obj)
        return bounds.settle(super().call(context, method, *args, **kwargs))

    def _method(self, called: Any) -> Any:
        """What is called in place of a built-in method; anything else is as it is."""
        if not isinstance(called, types.BuiltinFunctionType):
            return called
        subject, name = called.__self__, called.__name__
        if isinstance(subject, str) and (measured := _MEASURED.get(name)):
            return types.MethodType(measured, subject)
        if name not in _LINEAR.get(type(subject), ()):
            raise SecurityError(f"{name!r} of {type(subject).__name__!r} is not for templates")
        return called

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """``str.format`` and ``str.format_map``, measured; ``None`` for anything else."""
        if super().wrap_str_format(value) is None:
            return None
        pattern, mapped = cast("str", value.__self__), value.__name__ == "format_map"

        def written(*args: Any, **kwargs: Any) -> str:
            if mapped:
                (kwargs,), args = args, ()
            return _Formatter(self).vformat(pattern, args, kwargs)

        return written
