"""Whether tpgen takes or refuses each literal argument of operators of ATen: of each one that the archives have, and each
argument in the table of schemas, an archive is tried in which this one has another value than the file's, or than its default.
Then tpgen refuses it, or the graph is another one. Prints those for which neither holds; without_effect.tsv, beside the
archives, has all that may be so, each with its reason. Arguments: tpgen, the folder of the archives with schemas.tsv, a folder
to work in, how many at once."""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import zipfile

TPGEN, FOLDER, WORK, AT_ONCE = sys.argv[1:]
# Of memory, devices and libraries: they change no result.
NO_RESULT = set("pin_memory non_blocking copy implicit generator cudnn_enable cudnn_enabled benchmark deterministic allow_tf32 "
                "check_errors memory_format layout device dtype requires_grad".split())


def other(kind, default):
    """A literal of this type that is not the default, as archives write them; None where there is none to try."""
    optional, kind = kind.startswith("Optional["), kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    if kind == "bool":
        return {"as_bool": default != "true"}
    if kind in ("int", "number", "SymInt"):
        return {"as_int": int(float(default)) + 1 if default not in ("nil", "-", "math.huge") else 1}
    if kind == "float":
        return {"as_float": float(default) + 0.5 if default not in ("nil", "-", "math.huge") else 0.5}
    if kind == "str":
        return {"as_string": "other"}
    if kind in ("List[int]", "List[SymInt]"):
        return {"as_ints": [int(n) + 1 for n in re.findall(r"-?\d+", default)] or [1]}
    if kind == "List[bool]":
        return {"as_bools": [True]}
    return None


def changed(arg):
    """The literal with another value; None: it is none."""
    (kind, value), = arg.items()
    if kind == "as_bool":
        return {kind: not value}
    if kind in ("as_int", "as_float") and isinstance(value, (int, float)):
        return {kind: value + (1 if kind == "as_int" else 0.75)}
    if kind == "as_string":
        return {kind: "other"}
    if kind == "as_ints" and value:
        return {kind: [value[0] + 1, *value[1:]]}
    return None


def read(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, = [n for n in members if n.endswith("models/model.json") or n.endswith("serialized_exported_program.json")]
    return members, name


def dump(path):
    made = subprocess.run([TPGEN, "plans/torch_export.lua", "-D", "model=" + path, "--dump=lua"], capture_output=True)
    if made.returncode != 0:
        return made.returncode, made.stderr
    # The archive's name, and the sum over its text, are others.
    return 0, re.sub(rb" exported [0-9a-f]+", b"", made.stdout.replace(path.encode(), b""))


def attempt(job):
    number, path, node, name, arg = job
    members, program = read(path)
    data = json.loads(members[program])
    inputs = data["graph_module"]["graph"]["nodes"][node]["inputs"]
    for i, given in enumerate(inputs):
        if given["name"] == name:
            inputs[i] = {**given, "arg": arg}
            break
    else:
        inputs.append({"name": name, "arg": arg, "kind": 2})
    members[program] = json.dumps(data).encode()
    tried = os.path.join(WORK, f"{number}.pt2")
    with zipfile.ZipFile(tried, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    status, found = dump(tried)
    os.remove(tried)
    if status not in (0, 1):
        return f"status {status}: {found.decode()[-200:]}"
    return "refused" if status else "silent" if found == base[path] else "taken"


def decide(job):
    """Of a number that has no default in the schema, 1 may be what it is without: then 2 is tried."""
    result = attempt(job)
    return attempt((*job[:4], {"as_int": 2})) if result == "silent" and job[4] == {"as_int": 1} else result


with open(os.path.join(FOLDER, "without_effect.tsv")) as file:
    without_effect = {tuple(line.split("\t")[:2]) for line in file}
schemas = {}
with open(os.path.join(FOLDER, "schemas.tsv")) as file:
    for line in file:
        operator, name, kind, default = line.rstrip("\n").split("\t")
        schemas.setdefault(operator, []).append((name, kind, default))
jobs, seen, base = [], set(), {}
paths = [os.path.join(FOLDER, f) for f in os.listdir(FOLDER) if f.endswith(".pt2")]
for path in sorted(paths, key=lambda p: (os.path.getsize(p), p)):
    members, program = read(path)
    for node, call in enumerate(json.loads(members[program])["graph_module"]["graph"]["nodes"]):
        operator = call["target"].removeprefix("torch.ops.aten.")
        if operator in seen or operator not in schemas:
            continue
        if path not in base:
            status, base[path] = dump(path)
            if status != 0:
                del base[path]
                break
        seen.add(operator)
        given = {i["name"]: i["arg"] for i in call["inputs"]}
        for name, kind, default in schemas[operator]:
            if name in NO_RESULT:
                continue
            arg = changed(given[name]) if name in given else other(kind, default)
            if arg is not None:
                jobs.append((len(jobs), path, node, name, arg))
_, first, node, name, _ = next(j for j in jobs if j[3] == "dim")
if attempt((len(jobs), first, node, "none", {"as_none": True})) != "silent":
    sys.exit("an archive whose program is the same gives another graph")
with concurrent.futures.ThreadPoolExecutor(int(AT_ONCE)) as pool:
    results = list(pool.map(decide, jobs))
count = {}
for job, result in zip(jobs, results):
    count[result] = count.get(result, 0) + 1
    if result not in ("taken", "refused"):
        members, program = read(job[1])
        target = json.loads(members[program])["graph_module"]["graph"]["nodes"][job[2]]["target"].removeprefix("torch.ops.aten.")
        if (target, job[3]) not in without_effect or result != "silent":
            print(target, job[3], *job[4].values(), result, os.path.basename(job[1]))
print(len(seen), "operators,", len(jobs), "arguments:", ", ".join(f"{n} {what}" for what, n in sorted(count.items())), file=sys.stderr)
