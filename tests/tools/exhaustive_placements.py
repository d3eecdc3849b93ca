#!/usr/bin/env python3
"""All placements of tests/plans/auto/block.lua over a mesh of one dimension, one tpgen run each: what auto() must not be
worse than.

  exhaustive_placements.py TPGEN DIRECTORY [NAME=VALUE ...]

Shares nothing with gen/auto: it writes every combination of placements of the two weights, of what the first
product takes and of what the second one gives, makes each program and reads the
bytes that a rank receives in its plan.json. Of programs that keep no more than `parameters` bytes, and divide each
product, it prints the fewest bytes, those of auto(), and the best styles; the status is 1 where auto() is worse. With
device=NAME it is the time of the simulated step in the place of bytes."""
import itertools, json, os, shutil, subprocess, sys
tpgen, work, given = sys.argv[1], sys.argv[2], dict(a.split("=") for a in sys.argv[3:])
sizes = {"m": 64, "h": 16, "f": 64, "layers": 2, "mesh": 2, **{k: int(v) for k, v in given.items() if k not in ("rows", "device")}}
limit = sizes.get("parameters", 1 << 40)

def run(styles=None):
    shutil.rmtree(work, ignore_errors=True); os.makedirs(work)
    shutil.copy("tests/plans/auto/block.lua", work)
    arguments = [x for k, v in given.items() if not styles or k != "parameters" for x in ("-D", f"{k}={v}")]
    if styles:
        with open(work + "/styles.lua", "w") as f: f.write("return function(model, mesh)\n" + "\n".join(styles) + "\nend\n")
        arguments += ["-D", "styles=styles"]
    r = subprocess.run([tpgen, work + "/block.lua", "-o", work + "/out", *arguments], capture_output=True, text=True)
    if r.returncode: return None, r.stderr
    plan = json.load(open(work + "/out/plan.json"))
    if "device" in given: return plan["simulated_step"]["seconds"], arguments
    return sum(c["received"] * c["times"] for c in plan["collectives"]), arguments

def is_divided(arguments):  # no product is whole on every rank
    dump = subprocess.run([tpgen, work + "/block.lua", "--dump=recompute", *arguments], capture_output=True, text=True).stdout
    return not any(" = matmul(" in line and line.split(" of ")[0].rstrip().endswith("] R") for line in dump.split("\n"))

def held(weight):  # the part of its bytes that a rank keeps
    return 1 if weight == "Replicate()" else 1 / sizes["mesh"]

best = None
weights, layouts = ["Replicate()", "Shard(0)", "Shard(1)", "gathered"], [None, "Replicate()", "Shard(0)", "Shard(1)"]
total = sizes["layers"] * sizes["h"] * sizes["f"] * 4
for w1, in1, w2, out2 in itertools.product(weights, layouts, weights, layouts):
    if total * (held(w1) + held(w2)) > limit: continue
    lines, units = [], []
    for name, weight, before, after in (("w1", w1, in1, None), ("w2", w2, None, out2)):
        asked = [f"parameters = {{weight = {weight}}}"] if weight not in ("gathered", "Replicate()") else []
        asked += [f"inputs = {before}"] * bool(before) + [f"outputs = {after}"] * bool(after)
        if asked: lines.append(f'parallelize(model, mesh.a, {{["layers.*.{name}"] = ModuleLayouts{{{", ".join(asked)}}}}})')
        if weight == "gathered": units.append("layer." + name)
    if units: lines.append(f"for _, layer in ipairs(model.layers) do fully_shard({{{', '.join(units)}}}, mesh.a) end")
    got, arguments = run(lines or ["local _ = mesh"])
    if got is None: continue
    if (best is None or got < best[0]) and is_divided(arguments): best = (got, lines)
found, message = run()
if found is None: sys.exit("auto(): " + message)
print(f"least {best[0]}, auto() {found}: {' '.join(best[1])}")
sys.exit(found > best[0])
