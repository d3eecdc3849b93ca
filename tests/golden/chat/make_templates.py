"""Makes templates.json again: each template that it has with conversations, and what transformers' apply_chat_template makes of them,
or null where the template refuses them: make_templates.py templates.json [NEW.jinja...]. In the place of the day's date is DATE."""
import json, os, sys
import transformers.utils.chat_template_utils as utils
from transformers.utils.chat_template_utils import render_jinja_template

class Day:
    @staticmethod
    def now(): return Day()
    def strftime(self, form): return "DATE"
utils.datetime = Day

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "description": "the \"city\""}, "n": {"type": "integer", "enum": [1, 2]}, "items": {"type": "array", "items": {"type": "string"}}, "update": {"type": "boolean"}, "copy": {"type": "number"}}, "required": ["city"]}}}]
USER = {"role": "user", "content": "Hello?"}
CALL = [{"type": "function", "id": "abcdefghi", "function": {"name": "get_weather", "arguments": {"city": "Köln", "n": 1.5, "x": [True, None]}}}]
CONVERSATIONS = [
    dict(messages=[USER]), dict(messages=[{"role": "system", "content": " You are terse.\n"}, USER]),
    dict(messages=[USER, {"role": "assistant", "content": " Hi! "}, {"role": "user", "content": "What?\n"}]),
    dict(messages=[{"role": "system", "content": "S"}, USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"}, {"role": "user", "content": "B"}, {"role": "assistant", "content": "C"}], add_generation_prompt=False),
    dict(messages=[USER], tools=TOOLS),
    dict(messages=[{"role": "system", "content": "S"}, USER, {"role": "assistant", "content": "", "tool_calls": CALL}, {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"t\": 3}"}], tools=TOOLS),
    dict(messages=[USER], enable_thinking=False), dict(messages=[USER, USER]), dict(messages=[{"role": "assistant", "content": "x"}]),
    dict(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]),
    dict(messages=[{"role": "user", "content": "東京 ' \" \\ <|im_end|>"}], documents=[{"title": "t", "text": "x"}]),
    dict(messages=[USER, {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": CALL}, {"role": "tool", "content": "3"}, {"role": "tool", "content": "4"}], tools=TOOLS)]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
templates = {row["name"]: row["template"] for row in json.load(open(sys.argv[1]))}
templates.update({os.path.basename(path)[:-6]: open(path, newline="").read() for path in sys.argv[2:]})
rows = []
for name, template in sorted(templates.items()):
    some = CONVERSATIONS[:1] + CONVERSATIONS[4:5] if name.startswith("line_") else CONVERSATIONS
    cases = []
    for given in some:
        given = {"add_generation_prompt": True, **given}
        rest = {k: v for k, v in given.items() if k not in ("messages", "tools", "documents", "add_generation_prompt")}
        try:
            text = render_jinja_template([given["messages"]], tools=given.get("tools"), documents=given.get("documents"), chat_template=template,
                                         add_generation_prompt=given["add_generation_prompt"], date_string="DATE", **TOKENS, **rest)[0][0]
        except Exception:
            text = None
        cases.append({"variables": {**given, "date_string": "DATE"}, "text": text})
    rows.append({"name": name, "template": template, **TOKENS, "cases": cases})
with open(sys.argv[1], "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")
print(len(rows), sum(len(r["cases"]) for r in rows))
