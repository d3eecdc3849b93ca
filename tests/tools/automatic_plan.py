"""automatic_plan.py FILE.lua [STYLES]: a plan of plans/, or plans/lib/causal_lm.lua, with auto() in the place of its table of styles over tp;
STYLES: a table that stays beside it, as {["layers.*.qkv"] = ModuleLayouts{parts = 3}}."""
import re
import sys

text = open(sys.argv[1]).read()
begin = re.search(r"local model = parallelize\((\w+\([^()]*\)), ((?:p\.)?mesh\.tp), (\{|styles, options\))", text)
end, depth = begin.end(), 1
if begin.group(3) == "{":
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    end = text.index(")", end) + 1
else:  # and the layers' own tables, one by one
    end = text.index(" end\n", text.index("do plan_layer(", end)) + len(" end")
model, mesh = begin.group(1), begin.group(2)
tp = "args.tp" if begin.group(3) == "{" else "p.tp"
styles = f"parallelize(model, {mesh}, {sys.argv[2]})\n" if len(sys.argv) > 2 else ""
print(f"{text[:begin.start()]}local model = {model}\n{styles}if {tp} > 1 then parallelize(model, {mesh}, auto()) end{text[end:]}")
