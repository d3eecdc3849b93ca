"""Makes NAME.json beside it: a chat template, as a family of models has it, and the text of conversations by it.

    python make.py        needs transformers (5.23 made what is here)

Each file: "template", "bos_token", "eos_token", and "cases": "messages" and the "text" of apply_chat_template with
a generation prompt, or null where the template refuses them. In the place of the day's date is DATE.
"""
import json
import os
import time

from transformers.utils.chat_template_utils import render_jinja_template

ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles "
             "must alternate user/assistant/user/assistant/...') }}{% endif %}")
SPLIT_SYSTEM = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
"""
LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    DATE
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
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL3 = SPLIT_SYSTEM + """
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("After the optional system message, conversation roles must alternate") }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]_" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]_" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- ANSWER }}
    {%- endif %}
{%- endfor %}
"""
QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""
TEMPLATES = {
    "llama2": ("<s>", "</s>", "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set "
               "system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set "
               "system_message = false %}{% endif %}{% for message in loop_messages %}" + ALTERNATE +
               "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
               "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
               "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif "
               "message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", "{% set loop_messages = messages %}{% for message in loop_messages "
               "%}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] "
               "| trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ "
               "content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>"
               "\n\n' }}{% endif %}"),
    "llama31": ("<|begin_of_text|>", "<|eot_id|>", LLAMA31.replace("DATE", '{%- set date_string = "26 Jul 2024" %}')),
    "llama32": ("<|begin_of_text|>", "<|eot_id|>", LLAMA31.replace(
        "DATE", '{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set '
        'date_string = "26 Jul 2024" %}{%- endif %}')),
    "chatml": (None, "<|im_end|>", "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
               "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
               "'<|im_start|>assistant\n' }}{% endif %}"),
    "chatml_bos": ("<s>", "</s>", "{{ bos_token }}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' "
                   "+ message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
                   "'<|im_start|>assistant\n' }}{% endif %}"),
    "qwen2": (None, "<|im_end|>", "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
              "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
              "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if "
              "add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    "qwen25": (None, "<|im_end|>", QWEN25),
    "qwen3": (None, "<|im_end|>", QWEN3),
    "mistral1": ("<s>", "</s>", "{{ bos_token }}{% for message in messages %}" + ALTERNATE +
                 "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif "
                 "message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}{{ "
                 "raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"),
    "mistral2": ("<s>", "</s>", "{{ bos_token }}{% for message in messages %}" + ALTERNATE +
                 "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif "
                 "message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ "
                 "raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"),
    "mistral2_system": ("<s>", "</s>", SPLIT_SYSTEM.replace('"', "'") + "\n{{- bos_token }}\n{%- for message in "
                        "loop_messages %}\n    " + ALTERNATE.replace("{%", "{%-").replace("{{", "{{-") + """
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token}}
    {%- endif %}
{%- endfor %}
"""),
    "mistral3": ("<s>", "</s>", MISTRAL3.replace("_\"", " \"").replace("ANSWER", '" " + message["content"]|trim + eos_token')),
    "mistral_nemo": ("<s>", "</s>", MISTRAL3.replace("_\"", "\"").replace("ANSWER", 'message["content"] + eos_token')),
    "gemma": ("<bos>", "<eos>", "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role "
              "not supported') }}{% endif %}{% for message in messages %}" + ALTERNATE +
              "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = "
              "message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + "
              "'<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"),
    "gemma3": ("<bos>", "<eos>", GEMMA3),
    "zephyr": ("<s>", "</s>", "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + "
               "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + "
               "message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + "
               "message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ "
               "'<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
    "phi3": ("<s>", "<|endoftext|>", "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' "
             "+ message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + "
             "message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + "
             "message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ "
             "'<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"),
}
USER, ASSISTANT = [{"role": "user", "content": t} for t in ("Hello?", "  What is\n2 + 2? \n", "And é?")], [
    {"role": "assistant", "content": t} for t in ("Hi.", "<think>\nwell\n</think>\n\n4, I say.\n")]
SYSTEM = {"role": "system", "content": " You are terse.\n"}
TURNS = [[USER[0]], [SYSTEM, USER[0]], [USER[1], ASSISTANT[0], USER[2]],
         [SYSTEM, USER[0], ASSISTANT[1], USER[1], ASSISTANT[0], USER[2]], [USER[0], USER[1]], [USER[0], SYSTEM, USER[1]]]


def text_of(template, bos, eos, messages):
    try:
        tokens = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
        rendered = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, **tokens)
        return rendered[0][0].replace(time.strftime("%d %b %Y"), "DATE")
    except Exception as error:  # a template's own raise_exception
        assert type(error).__name__ == "TemplateError", error
        return None


for name, (bos, eos, template) in TEMPLATES.items():
    # Where turns alternate, or the system's text is no turn of its own, a later system turn is not looked at.
    some = TURNS[:5] if "raise_exception" in template or "Cutting" in template else TURNS
    cases = [dict(messages=m, text=text_of(template, bos, eos, m)) for m in some]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".json")
    with open(path, "w") as file:
        json.dump(dict(template=template, bos_token=bos, eos_token=eos, cases=cases), file, indent=1, ensure_ascii=False)
        file.write("\n")
