# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""What transformers makes of conversations with chat templates, for test_chat_template.cpp.

    python3 make_chat_templates.py                         writes chat_templates.json beside itself: short templates of the
                                                           kinds that Espalier knows
    python3 make_chat_templates.py OUTPUT FILE.jinja...    the same of templates of real models, such as those in the Python
                                                           package trl; ESPALIER_CHAT_TEMPLATES=OUTPUT io_tests checks them

Run by hand; needs transformers.
"""
import json
import sys
from pathlib import Path

import transformers
from tokenizers import Tokenizer

HERE = Path(__file__).parent
CHATML_TURN = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
CHATML_PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
SYSTEM_FIRST = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are brief.<|im_end|>\\n' }}{% endif %}"
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last_query_index=messages|length - 1, open=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.open = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
LLAMA3_TURN = "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>'"
LLAMA3_PROMPT = "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- """ + LLAMA3_TURN + """ }}
{%- endfor %}
""" + LLAMA3_PROMPT
ALTERNATE = "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
MISTRAL_SYSTEM = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    """ + ALTERNATE


def mistral(begin, end, place, answer):
    return MISTRAL_SYSTEM + f"""
    {{%- if message["role"] == "user" %}}
        {{%- if {place} and system_message is defined %}}
            {{{{- "{begin}" + system_message + "\\n\\n" + message["content"] + "{end}" }}}}
        {{%- else %}}
            {{{{- "{begin}" + message["content"] + "{end}" }}}}
        {{%- endif %}}
    {{%- elif message["role"] == "assistant" %}}
        {{{{- {answer} }}}}
    {{%- else %}}
        {{{{- raise_exception("Only user and assistant roles are supported!") }}}}
    {{%- endif %}}
{{%- endfor %}}
"""


TEMPLATES = {
    "chatml": "{% for message in messages %}" + CHATML_TURN + "{% endfor %}" + CHATML_PROMPT,
    "chatml_on_lines": "{%- for message in messages %}\n    {{- \"<|im_start|>\" + message.role + \"\\n\" + message.content + "
                       "\"<|im_end|>\\n\" -}}\n{% endfor %}\n" + CHATML_PROMPT + "\n",
    "chatml_with_default": "{% for message in messages %}" + SYSTEM_FIRST + CHATML_TURN + "{% endfor %}" + CHATML_PROMPT,
    "qwen3": QWEN3,
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = " + LLAMA3_TURN +
              " %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}" + LLAMA3_PROMPT,
    "llama3.1": LLAMA31,
    "mistral_v1": "{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + "
                  "message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}"
                  "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "mistral_v1_with_system": mistral(" [INST] ", " [/INST]", "loop.first", "' ' + message['content'] + eos_token"),
    "mistral_v3": mistral("[INST] ", "[/INST]", "loop.last", '" " + message["content"]|trim + eos_token'),
    "mistral_v3_last": mistral("[INST] ", "[/INST]", "(message == user_messages[-1])", '" " + message["content"]|trim + eos_token'),
    "mistral_nemo": mistral("[INST]", "[/INST]", "loop.last", 'message["content"] + eos_token'),
    "mistral_v7": "{{- bos_token }}\n{%- for message in messages %}\n    {%- if message['role'] == 'user' %}\n        {{- '[INST]' + "
                  "message['content'] + '[/INST]' }}\n    {%- elif message['role'] == 'system' %}\n        {{- '[SYSTEM_PROMPT]' + "
                  "message['content'] + '[/SYSTEM_PROMPT]' }}\n    {%- elif message['role'] == 'assistant' %}\n        {{- "
                  "message['content'] + eos_token }}\n    {%- endif %}\n{%- endfor %}\n",
}
CONVERSATIONS = [
    "u:What is 2 + 2?|a:4",
    "s:You are terse.|u:Hi|a:Hello!",
    "u:Hi|a:Hello, how are you?|u:Fine. And now?|a:Now we talk.",
    "s:  Spaces around. \n|u:\n  in a question \n\n|a: and an answer \u00a0\n|u:again|a:\n\nlines",
    "s:\u00dcber \u65e5\u672c\u8a9e|u:caf\u00e9 \U0001f600?|a:e\u0301 \u4f60\u597d\n```py\nx = 1\n```",
    "u:Think.|a:<think>\nhm\n\n</think>\n\nfirst|u:Again.|a:<think>\nmore\n</think>\n\nsecond",
    "u:Twice?|a:<think>one</think>once|a:and again",
    "s:System|u:one|a:two|s:System again|u:three|a:four",
    "u:An empty answer?|a:",
]
ROLES = {"s": "system", "u": "user", "a": "assistant"}


def messages_of(text):
    return [{"role": ROLES[part[0]], "content": part[2:]} for part in text.split("|")]


def tokenizer_of(name, template, special):
    core = Tokenizer.from_file(str(HERE / name))
    core.add_special_tokens(special)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, bos_token="<s>", eos_token="</s>")


def texts_of(template):
    """Of each conversation its text, and that of all but the last message up to the answer; null where the template refuses it."""
    tokenizer = tokenizer_of("gpt2_like.json", template, [])
    for text in CONVERSATIONS:
        for prompt in (False, True):
            try:
                yield tokenizer.apply_chat_template(messages_of(text)[:-1] if prompt else messages_of(text), tokenize=False,
                                                    add_generation_prompt=prompt, date_string="26 Jul 2024")
            except Exception:  # the template's own
                yield None


def ids_of(name, kind, special):
    tokenizer = tokenizer_of(name, TEMPLATES[kind], special)
    return {"tokenizer": name, "template": kind, "added": tokenizer.get_added_vocab(),
            "ids": {i: tokenizer.apply_chat_template(messages_of(CONVERSATIONS[i]), return_dict=False) for i in (0, 1, 2, 3, 4)}}


def main():
    templates, ids, output = TEMPLATES, [], HERE / "chat_templates.json"
    if len(sys.argv) > 1:
        output, templates = sys.argv[1], {Path(file).stem: Path(file).read_text(encoding="utf-8") for file in sys.argv[2:]}
    else:
        ids = [ids_of("gpt2_like.json", "chatml_with_default", ["<|im_start|>", "<|im_end|>"]),
               ids_of("llama3_like.json", "llama3", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
               ids_of("llama2_like.json", "mistral_v1_with_system", [])]
    data = {"transformers": transformers.__version__, "conversations": [messages_of(text) for text in CONVERSATIONS],
            "templates": {name: {"template": template, "texts": list(texts_of(template))} for name, template in templates.items()},
            "ids": ids}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    Path(output).write_text(text.replace('{"template"', '\n{"template"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
