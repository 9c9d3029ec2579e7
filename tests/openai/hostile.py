"""Templates that would eat the memory, or never come back from C, if they were let."""

from __future__ import annotations


def grown(first: str, step: str, more: str = "") -> str:
    """A value that is made of itself sixty times: small by itself, endless for whoever reads it."""
    return (
        f"{{% set ns = namespace(x={first}, y={first}) %}}{{% for _ in range(60) %}}"
        f"{{% set ns.x = {step} %}}{{% endfor %}}{more}"
    )


DATA = "x" * 1000
REPEATED = f"{{% for _ in range(100000) %}}{DATA}{{% endfor %}}"

TOO_LONG: dict[str, str] = {
    "repeated text": "{{ 'a' * 10**11 }}",
    "repeated from the right": "{{ 10**11 * 'a' }}",
    "a repeated list": "{% set x = ['a'] * 10**9 %}",
    "doubled by ~": grown("'aaaa'", "ns.x ~ ns.x"),
    "doubled by +": grown("'aaaa'", "ns.x + ns.x"),
    "doubled lists": grown("[1]", "ns.x + ns.x"),
    "lists in lists": grown("[1]", "[ns.x, ns.x]", "{{ ns.x == ns.y }}"),
    "tuples in tuples": grown("(1,)", "(ns.x, ns.x)", "{{ {ns.x: 1} }}"),
    "tables in tables": grown("{}", "{'a': ns.x, 'b': ns.x}"),
    "tables made of arguments": grown("{}", "dict(a=ns.x, b=ns.x)"),
    "arguments kept": grown("[]", "cycler(ns.x, ns.x).items"),
    "namespaces in namespaces": grown("1", "namespace(a=ns.x, b=ns.x)", "{{ ns.x }}"),
    "a namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "a format of a long value": "{{ ('%(a)s' * 100000) % {'a': 'x' * 1000000} }}",
    "fields of a long value": "{{ ('{0}' * 100000).format('x' * 1000000) }}",
    "replaced": "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
    "replaced by the filter": "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}",
    "put between all letters": "{{ ('a' * 1000000)|replace('', 'b' * 1000000) }}",
    "joined": "{{ ('b' * 1000000).join(('a' * 1000)|list) }}",
    "joined by the filter": "{{ ('a' * 1000)|list|join('b' * 1000000) }}",
    "joined of one": "{{ range(100000)|map('replace', '', 'b' * 1000000)|join }}",
    "tabs": "{{ ('\t' * 1000000).expandtabs(999) }}",
    "indented": "{{ ('a\n' * 1000000)|indent(999) }}",
    "indented deeply": grown("[1]", "[ns.x]", "{{ ([ns.x] * 30000)|tojson(indent=999) }}"),
    "summed": "{{ (['a' * 4000] * 3000)|sum(start='') }}",
    "a block": f"{{% set x %}}{REPEATED}{{% endset %}}",
    "a macro": f"{{% macro m() %}}{REPEATED}{{% endmacro %}}{{{{ m() }}}}",
    "a filtered block": f"{{% filter upper %}}{REPEATED}{{% endfilter %}}",
    "many variables": "".join(f"{{% set a{i} = 'x' * 4000000 %}}" for i in range(100)),
    "many slices": "{% set s = 'x' * 4000000 %}"
    + "".join(f"{{% set a{i} = s[1:] %}}" for i in range(100)),
    "constants": "{{ " + " ~ ".join(["('a'|center(999) * 4000)"] * 100) + " }}",
}
"""What is refused for being too long."""

TOO_WIDE: dict[str, str] = {
    "%d": "{{ '%1000000000d' % 1 }}",
    "%.f": "{{ '%.1000000000f' % 1 }}",
    "%(a)d": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "the filter": "{{ '%1000000000d'|format(1) }}",
    "a field": "{{ '{:>1000000000}'.format(1) }}",
    "a field in a field": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format_map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "a method from elsewhere": "{{ ('{:>1000000000}'|attr('format'))(1) }}",
    "centred": "{{ 'a'.center(1000000000) }}",
    "centred by the filter": "{{ 'a'|center(1000000000) }}",
    "to the left": "{{ 'a'.ljust(1000000000) }}",
    "zeros": "{{ 'a'.zfill(1000000000) }}",
    "a tab": "{{ '\t'.expandtabs(1000000000) }}",
    "an indentation": "{{ 'a\nb'|indent(1000000000) }}",
    "an indentation of text": "{{ 'a\nb'|indent('x' * 1000000) }}",
    "JSON": "{{ [1]|tojson(indent=1000000000) }}",
    "JSON with long separators": "{{ [1]|tojson(separators=('x' * 1000000, '')) }}",
    "rounded": "{{ 5|round(-1000000000) }}",
    "rounded up": "{{ 5|round(1000000000, 'ceil') }}",
    "batches": "{{ [1]|batch(10**10, 1)|list }}",
    "slices": "{{ [1]|slice(10**10)|list }}",
}
"""What asks for a field that is too wide."""

TOO_LARGE: dict[str, str] = {
    "a power": "{{ 2 ** (10 ** 9) }}",
    "a small power often": grown("2", "ns.x ** 9"),
    "a product": grown("2", "ns.x * ns.x"),
    "a number in text": "{% set n = ('f' * 1000000)|int(0, 16) %}{{ n // 3 }}",
    "a literal": "{{ 0x" + "f" * 10_000 + " // 3 }}",
}
"""What counts with too large numbers."""

FORBIDDEN: dict[str, tuple[str, str]] = {
    "translate": ("{{ 'a'.translate({97: 'b' * 1000000}) }}", "'translate' of 'str'"),
    "to_bytes": ("{{ (1).to_bytes(10**10) }}", "'to_bytes' of 'int'"),
    "encode": ("{{ 'a'.encode() }}", "'encode' of 'str'"),
    "fromkeys": ("{{ dict.fromkeys(range(100000), 'x') }}", "'fromkeys' of 'type'"),
    "*": ("{{ '%*d' % (10**9, 1) }}", "takes the widths of a format from its values"),
    "nested keys": ("{{ '%(a(b))10000000000d' % {'a(b)': 1} }}", "takes the widths"),
    "range": ("{{ range(10**9)|list }}", "Range too big"),
    "a namespace in a list": (
        "{% set n = namespace(x='a') %}{{ ([n] * 1000)|map(attribute='x')|join }}",
        "something else than data into a list",
    ),
    "autoescape": ("{% autoescape true %}x{% endautoescape %}", "a prompt is no web page"),
    "lipsum": ("{{ lipsum(n=10**9) }}", "'lipsum' is undefined"),
    "pprint": ("{{ [1]|pprint }}", "No filter named 'pprint'"),
    "strftime": ("{{ strftime_now('%Y' * 1000) }}", "formats the time by more than 1000"),
    "much source": ("x" * ((1 << 20) + 1), "longer than 1048576 bytes"),
    "much code": ("{{a}}" * 20_000, "the template is too long"),
    "deep source": ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "RecursionError"),
}
"""What is refused for another reason, and for which."""
