#!/usr/bin/env python3
"""Makes another safetensors file: edit_safetensors.py FROM TO EDIT...

An edit is one of: drop=NAME, rename=NAME:NEW, copy=NAME:NEW, change=NAME (its first byte), add=NAME:DTYPE:SIZExSIZE (zeros; without
sizes one number)."""
import json
import struct
import sys

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1, "F8_E4M3": 1}
with open(sys.argv[1], "rb") as f:
    whole = f.read()
length = struct.unpack("<Q", whole[:8])[0]
head = json.loads(whole[8:8 + length])
data = whole[8 + length:]
metadata = head.pop("__metadata__", None)
tensors = {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in head.items()}
for edit in sys.argv[3:]:
    what, rest = edit.split("=", 1)
    if what == "drop":
        del tensors[rest]
    elif what == "rename":
        old, new = rest.split(":")
        tensors[new] = tensors.pop(old)
    elif what == "copy":
        old, new = rest.split(":")
        tensors[new] = tensors[old]
    elif what == "change":
        dtype, shape, content = tensors[rest]
        tensors[rest] = (dtype, shape, bytes([content[0] ^ 1]) + content[1:])
    elif what == "add":
        name, dtype, *sizes = rest.split(":")
        shape = [int(n) for n in sizes[0].split("x")] if sizes and sizes[0] else []
        n = SIZES[dtype]
        for size in shape:
            n *= size
        tensors[name] = (dtype, shape, bytes(n))
    else:
        raise SystemExit(f"edit_safetensors.py: {edit}: no such edit")
head, at = {}, 0
for name, (dtype, shape, content) in tensors.items():
    head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
    at += len(content)
if metadata: # not checksums, which are of other bytes
    head["__metadata__"] = {k: v for k, v in metadata.items() if k == "format"}
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[2], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))
