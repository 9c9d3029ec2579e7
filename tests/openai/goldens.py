"""Chat templates, and what they must make of one conversation.

The first is the text that SmolLM2-135M-Instruct carries in its file's ``tokenizer.chat_template``.
The others are small ones of our own in the manner of two families.
"""

from __future__ import annotations

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SMOLLM2_PROMPT = """\
<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
<|im_start|>user
Why is the sky blue?<|im_end|>
<|im_start|>assistant
"""

SMOLLM2_PROMPT_WITH_SYSTEM = """\
<|im_start|>system
Be brief.<|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
Hello.<|im_end|>
<|im_start|>user
Why <b>"so"</b>?<|im_end|>
<|im_start|>assistant
"""

# Headers around each role, today's date, an optional system turn, white space trimmed by blocks.
HEADERS = """\
{{- bos_token }}
{%- if strftime_now is defined %}
    {%- set today = strftime_now("%d %b %Y") %}
{%- else %}
    {%- set today = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
<|head|>system<|end|>

Today: {{ today }}
  {% if system %}
{{ system }}
{% endif %}
{%- if tools is not none %}
Tools: {{ tools | tojson }}
{%- endif %}
<|stop|>
{%- for message in messages %}
    {{- '<|head|>' + message['role'] + '<|end|>\\n\\n' + message['content'] | trim + '<|stop|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|end|>\\n\\n' }}
{%- endif %}
"""

HEADERS_PROMPT = """\
<|begin|><|head|>system<|end|>

Today: 29 Feb 2024
Be brief.
<|stop|><|head|>user<|end|>

Hi<|stop|><|head|>assistant<|end|>

Hello.<|stop|><|head|>user<|end|>

Why <b>"so"</b>?<|stop|><|head|>assistant<|end|>

"""

# Instructions in brackets, the system turn inside the first of them, turns held to alternate.
BRACKETS = """\
{%- set ns = namespace(system="", turns=[]) -%}
{%- for message in messages -%}
    {%- if message.role == "system" -%}
        {%- set ns.system = message.content -%}
        {%- continue -%}
    {%- endif -%}
    {%- set ns.turns = ns.turns + [message] -%}
{%- endfor -%}
{{- bos_token -}}
{%- for message in ns.turns -%}
    {%- if (message.role == "user") != (loop.index0 % 2 == 0) -%}
        {{- raise_exception("roles must alternate: " + message.role + " is out of turn") -}}
    {%- endif -%}
    {%- if message.role == "user" -%}
        {{- "[INST] " + (ns.system + "\\n\\n" if loop.last and ns.system else "") -}}
        {{- message.content + " [/INST]" -}}
    {%- else -%}
        {% generation %}{{- " " + message.content + eos_token -}}{% endgeneration %}
    {%- endif -%}
{%- endfor -%}
"""

BRACKETS_PROMPT = '<s>[INST] Hi [/INST] Hello.</s>[INST] Be brief.\n\nWhy <b>"so"</b>? [/INST]'
