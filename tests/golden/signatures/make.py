#!/usr/bin/env python3
"""Writes the tables of PyTorch's signatures that tests/scripts/language/signatures.sh walks. Needs PyTorch (2.13 made them).

  build/tpgen tests/signatures/names.lua -o /tmp/none | python3 tests/golden/signatures/make.py

Reads the names that tpgen offers, F.NAME, x:NAME and nn.NAME, one a line, and writes beside itself, for each that
PyTorch has too, in columns parted by tabs:

  functions.tsv, methods.tsv, modules.tsv
      name  overload  place  argument  kind  default

  place     from 0, of the positional arguments; a method's own tensor is not counted
  kind      required, optional, keyword (by name alone), rest (of any number)
  default   of an optional argument, as Lua writes it; ? where Lua cannot

Of functions in Python inspect.signature tells it, of native ones the schemas of their overloads. Overloads that write
to `out` or name dimensions are left out: tensors have no names here."""
import inspect
import os
import sys
import typing

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMAS = {}
for schema in torch._C._jit_get_all_schemas():
    SCHEMAS.setdefault(schema.name, []).append(schema)
CONTAINERS = "Parameter", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Sequential", "Identity"


def lua(value):
    if value is None or value is inspect.Parameter.empty:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, float)) for v in value):
        return "{" + ", ".join(map(repr, value)) + "}"
    return "?"


def of_python(function, skip):
    rows, place = [], 0
    # nn.LSTM and the like take *args, and say by an overload what these are.
    if inspect.isfunction(function):
        function = (typing.get_overloads(function) or [function])[0]
    for name, p in list(inspect.signature(function).parameters.items())[skip:]:
        if p.kind == p.VAR_KEYWORD:
            continue
        if p.kind == p.VAR_POSITIONAL:
            rows.append(("", place, name, "rest", "nil"))
            continue
        kind = "keyword" if p.kind == p.KEYWORD_ONLY else "required" if p.default is p.empty else "optional"
        rows.append(("", place, name, kind, lua(p.default)))
        place += 1
    return rows


def of_schema(name, method):
    rows = []
    for schema in SCHEMAS.get(f"aten::{name}", []):
        types = [str(a.type) for a in schema.arguments]
        names = [a.name for a in schema.arguments]
        # What writes to an argument; dimensions by name; scripts' own functions of lists and numbers.
        if any(a.kwarg_only and a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
            continue
        if any(n in ("dim", "dims") and "str" in t for n, t in zip(names, types)):
            continue
        if names[0] in ("a", "reverse") or "reverse" in names:
            continue
        if not any("Tensor" in t for t in types) and name not in ("arange", "eye", "full", "ones", "zeros"):
            continue
        if "names" in names or schema.overload_name.startswith("prim"):
            continue
        arguments = list(schema.arguments)
        if method:
            own = [a for a in arguments if a.name in ("self", "input") and "Tensor" in str(a.type)]
            if not own:
                continue
            arguments.remove(own[0])
        place = 0
        for a in arguments:
            kind = "keyword" if a.kwarg_only else "optional" if a.has_default_value() else "required"
            called = "input" if a.name == "self" else a.name
            rows.append((schema.overload_name, place, called, kind,
                         lua(a.default_value) if a.has_default_value() else "nil"))
            place += 1
    return rows


def signature_of(function, name, method):
    """Rows of one function: from Python where it has a signature, else from its schemas."""
    skip = 1 if method else 0
    try:
        rows = of_python(function, skip)
        if not any(r[3] == "rest" for r in rows):
            return rows
    except (ValueError, TypeError):
        pass
    return of_schema({"logsigmoid": "log_sigmoid"}.get(name, name), method)


def is_of_functional(name):
    f = getattr(F, name)
    return getattr(f, "__module__", "") == "torch.nn.functional" or name not in torch.__dict__ or name in (
        "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "avg_pool1d", "adaptive_avg_pool1d", "prelu")


def main():
    offered = [line.strip() for line in sys.stdin if line.strip()]
    tables = {"functions": [], "methods": [], "modules": []}
    for full in sorted(set(offered)):
        if full.startswith("F."):
            name = full[2:]
            # torch's own functions go by torch's signatures; torch.nn.functional has those of its own.
            home = F if hasattr(F, name) and (not hasattr(torch, name) or is_of_functional(name)) else torch
            f = getattr(home, name, None)
            if f is None or not callable(f):
                continue
            rows = of_schema(name, False) if name.startswith("max_pool") else signature_of(f, name, False)
            tables["functions"] += [(name, *r) for r in rows]
        elif full.startswith("x:"):
            name = full[2:]
            f = getattr(torch.Tensor, name, None)
            if f is not None and callable(f):
                tables["methods"] += [(name, *r) for r in signature_of(f, name, True)]
        elif full.startswith("nn."):
            name = full[3:]
            f = getattr(torch.nn, name, None)
            if f is not None and inspect.isclass(f) and name not in CONTAINERS:
                tables["modules"] += [(name, *r) for r in of_python(f.__init__, 1)]
    for table, rows in tables.items():
        with open(os.path.join(HERE, table + ".tsv"), "w") as file:
            for row in rows:
                file.write("\t".join(map(str, row)) + "\n")


if __name__ == "__main__":
    main()
