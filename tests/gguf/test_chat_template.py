"""The outer form of a chat template: what llama.cpp's own parser refused, and what it took."""

from __future__ import annotations

import pytest

from console.models.gguf.chat_template import fault

REFUSED = {
    "{% for x in %}{{": "for names no list", "{% if true %}a": "the block if does not end",
    "{{ }}": "an expression is empty", "{% endif %}": "endif ends no block",
    "{% bogus %}": "unknown statement: bogus", "{# x": "a comment does not end",
    "{{ (1 }}": "closes nothing", "{{ 'a }}": "a tag does not end",
    "{% for x in y %}{% endif %}": "endif ends no block", "{% if %}{% endif %}": "if says nothing",
    "{% elif x %}": "elif is in no block", "{% set a %}b": "the block set does not end",
}  # fmt: skip
TAKEN = (
    "", "a }} b", "{{ '}}' }}", '{{ {"a": {"b": 1}}}}', "{% set a %}x{% endset %}",
    "{% set ns = namespace(a='=') %}", "{%- if(x) -%}x{%- else -%}y{%- endif -%}",
    "{% generation %}x{% endgeneration %}", "{% filter upper %}x{% endfilter %}", "{{ -1 }}",
    "{%for x in[1]%}{% break %}{% continue %}{%else%}{%endfor%}", "{# {{ #}", "{{ 'it\\'s' }}",
    "{% macro f(x) %}{{ 5 % 2 }}{% endmacro %}",
)  # fmt: skip


@pytest.mark.parametrize("template", REFUSED)
def test_what_is_no_template_is_named(template: str) -> None:
    assert REFUSED[template] in fault(template)


@pytest.mark.parametrize("template", TAKEN)
def test_a_template_that_is_served_passes(template: str) -> None:
    assert fault(template) == ""
