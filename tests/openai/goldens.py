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

# Tools in the system turn, thoughts left out of what is long said, results of tools gathered in one
# user's turn, and a switch that the request may turn.
TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nYou may call these:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if ns.searching and message.role == "user" and message.content is string %}
        {%- set ns.searching = false %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- if '</think>' in content and loop.index0 < ns.last %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {%- set call = call.function if call.function else call %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}
                {{- call.arguments }}
            {%- else %}
                {{- call.arguments | tojson }}
            {%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

TOOLS_PROMPT = """\
<|im_start|>system
Be brief.

# Tools

You may call these:
<tools>
{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
</tools><|im_end|>
<|im_start|>user
Paris or Zürich?<|im_end|>
<|im_start|>assistant
I look.
<tool_call>
{"name": "weather", "arguments": {"city": "Paris", "<unit>": "°C"}}
</tool_call>
<tool_call>
{"name": "weather", "arguments": {"city": "Zürich"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
21
</tool_response>
<tool_response>
17
</tool_response><|im_end|>
<|im_start|>assistant
Paris.<|im_end|>
<|im_start|>user
Why?<|im_end|>
<|im_start|>assistant
<think>

</think>

"""

# A macro that walks through a schema, as families that describe tools in their own words have it.
SCHEMA = """\
{%- macro kind(spec) -%}
    {%- if spec.type == "array" -%}
        {{- kind(spec['items']) + "[]" -}}
    {%- elif spec.type == "object" -%}
        {{- "{ " -}}
        {%- for name, each in spec.properties.items() | sort -%}
            {{- name + ("" if name in spec.get("required", []) else "?") + ": " + kind(each) -}}
            {{- ", " if not loop.last -}}
        {%- endfor -%}
        {{- " }" -}}
    {%- else -%}
        {{- spec.type | default("any", true) -}}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools | map(attribute="function") | list -%}
    {{- tool.name + "(" + kind(tool.parameters) + ")" -}}
{%- endfor -%}
"""
