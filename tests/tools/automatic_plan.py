"""automatic_plan.py PLAN.lua [STYLES]: a plan of plans/ with auto() in the place of its table of styles over tp; STYLES: a table that
stays beside it, as {["layers.*.qkv"] = ModuleLayouts{parts = 3}}."""
import re
import sys

text = open(sys.argv[1]).read()
begin = re.search(r"local model = parallelize\((\w+\(\)), ((?:p\.)?mesh\.tp), \{", text)
end, depth = begin.end(), 1
while depth:
    depth += {"{": 1, "}": -1}.get(text[end], 0)
    end += 1
end = text.index(")", end) + 1
model, mesh = begin.group(1), begin.group(2)
styles = f"parallelize(model, {mesh}, {sys.argv[2]})\n" if len(sys.argv) > 2 else ""
print(f"{text[:begin.start()]}local model = {model}\n{styles}if args.tp > 1 then parallelize(model, {mesh}, auto()) end{text[end:]}")
