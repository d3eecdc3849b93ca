#!/usr/bin/env python3
"""check_rotary.py rotary.json FILE.safetensors...: in one of the files each, cosines and sines of positions 0 to 3 are those of transformers' frequencies."""
import json
import math
import struct
import sys

with open(sys.argv[1]) as f:
    variants = json.load(f)["variants"]
tensors = {}
for path in sys.argv[2:]:
    with open(path, "rb") as f:
        whole = f.read()
    length = struct.unpack("<Q", whole[:8])[0]
    for name, t in json.loads(whole[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", whole[8 + length + begin:8 + length + end])
wrong = 0
for name, row in variants.items():
    for what, function in (("cos", math.cos), ("sin", math.sin)):
        found = tensors[f"{name}_{what}"]
        expected = [row["factor"] * function(place * w) for place in range(4) for w in row["inverse_frequencies"]]
        apart = max(abs(a - b) for a, b in zip(found, expected))
        if len(found) < len(expected) or len(found) % len(row["inverse_frequencies"]) or apart > 1e-6:
            print(f"{name}: {what} is {apart} away")
            wrong += 1
print(f"{len(variants)} variants, {wrong} wrong")
sys.exit(wrong > 0)
