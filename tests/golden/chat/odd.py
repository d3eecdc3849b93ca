"""Makes odd.json beside it, of odd_templates.txt: templates that use what few do, and the text of conversations by them.

    python odd.py        needs transformers (5.24 made what is here)

Each row is like those of templates.json: "text" is null where the template fails."""
import copy
import json
import os

from transformers.utils.chat_template_utils import render_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Wetter für \"Köln\" <b>&amp;</b>", "parameters": {
    "type": "object", "properties": {"n": {"type": "number", "default": 1.5, "enum": [1, 2.0, 1e20, 1e-7]}}}}}]
CALL = turn("assistant", "", tool_calls=[{"id": "abc", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Köln", "n": 1.0, "x": None, "y": True}}}])
CASES = [
    {"messages": [turn("system", "Be  brief.\n"), turn("user", " What's 2+2? "), turn("assistant", "4"), turn("user", "Thanks")],
     "add_generation_prompt": True},
    {"messages": [turn("user", "weather?"), CALL, turn("tool", "{\"t\": 20}", name="get_weather"), turn("assistant", "20 degrees")],
     "tools": TOOLS, "add_generation_prompt": True},
    {"messages": [turn("user", [{"type": "text", "text": "look"}, {"type": "image"}])], "add_generation_prompt": True},
    {"messages": [turn("user", "Ünïcödé 日本 🙂 \u2028 \t <|im_end|>"), turn("assistant", "<think>\nhm\n</think>\n\nanswer")],
     "add_generation_prompt": False, "enable_thinking": False, "custom": {"a": [1, 2, {"b": None}], "z": 1.0}},
]
with open(os.path.join(HERE, "odd_templates.txt")) as file:
    templates = file.read().rstrip("\n").split("\n=====\n")
rows = []
for number, template in enumerate(templates):
    cases = []
    for case in CASES:
        given = copy.deepcopy(case)
        messages, tools, prompt = given.pop("messages"), given.pop("tools", None), given.pop("add_generation_prompt")
        try:
            text = render_jinja_template(conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=prompt,
                                         **TOKENS, **given)[0][0]
        except Exception:
            text = None
        cases.append({"variables": {"tools": None, "documents": None, **case}, "text": text})
    rows.append({"name": f"odd {number}", "template": template, **TOKENS, "cases": cases})
with open(os.path.join(HERE, "odd.json"), "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
