"""Writes gen/lua/torch_export/defaults.lua: of each operator of ATen whose name the importer has, the literal arguments that
have a default, and schemas.tsv beside itself: operator, argument, type, and the default. Needs PyTorch (2.15 made them)."""
import glob
import os
import re

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
LUA = os.path.join(HERE, "../../../gen/lua/torch_export")


def lua(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return {"inf": "math.huge", "-inf": "-math.huge"}.get(repr(value), repr(value))
    if isinstance(value, str):
        return f'"{value}"'
    return "{" + ", ".join(map(lua, value)) + "}"


words = set()
for path in sorted(glob.glob(os.path.join(LUA, "*.lua"))):
    if not path.endswith("defaults.lua"):
        with open(path) as file:
            words |= set(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", file.read()))
rows, table = [], []
for schema in sorted(torch._C._jit_get_all_schemas(), key=lambda s: (s.name, s.overload_name)):
    name = schema.name.removeprefix("aten::")
    if name == schema.name or name not in words and name.rstrip("_") not in words and not re.match("_?upsample_|rnn_", name):
        continue
    if any(a.is_out for a in schema.arguments):
        continue
    literal = []
    for a in schema.arguments:
        if "Tensor" in str(a.type):
            continue
        rows.append((f"{name}.{schema.overload_name or 'default'}", a.name, str(a.type), lua(a.default_value)
                     if a.has_default_value() and a.default_value is not None else "nil" if a.has_default_value() else "-"))
        if a.has_default_value() and a.default_value is not None:
            key = a.name if a.name not in ("end", "repeat") else f'["{a.name}"]'
            literal.append(f"{key} = {lua(a.default_value)}")
    if literal:
        table.append(f'  ["{name}.{schema.overload_name or "default"}"] = {{{", ".join(literal)}}},')
with open(os.path.join(HERE, "schemas.tsv"), "w") as file:
    for row in sorted(set(rows)):
        file.write("\t".join(row) + "\n")
with open(os.path.join(LUA, "defaults.lua"), "w") as file:
    file.write("-- defaults.lua: by an operator of ATen (PyTorch 2.15), its literal arguments that have a default. Written by\n"
               "-- tests/golden/torch_export/schemas.py.\nlocal _, base = ...\n\nbase.torch.defaults = {\n" + "\n".join(table) + "\n}\n")
print(len(set(rows)), "arguments,", len(table), "operators with defaults")
