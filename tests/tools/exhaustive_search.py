#!/usr/bin/env python3
"""All settings of a plan for a cluster, one tpgen run each: what --search must not be worse than.

  exhaustive_search.py TPGEN PLAN DEVICES BATCH [--vary NAME=V,V ...] [--sample N] [--below SECONDS] -- ARGUMENTS

Shares nothing with gen/search: it makes each program and reads its plan.json. Prints the ten quickest that fit, and the
quickest in search.json's form on the last line."""
import argparse, itertools, json, os, random, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]

def meshes(devices, dims):
    if not dims:
        return [()] if devices == 1 else []
    return [(d, *rest) for d in divisors(devices) for rest in meshes(devices // d, dims[1:])]

def settings(args):
    dims = ["dp_replicate", "dp_shard", "tp", "pp"] + (["cp"] if args.cp else [])
    for sizes in meshes(args.devices, dims):
        mesh = dict(zip(dims, sizes))
        data = mesh["dp_replicate"] * mesh["dp_shard"]
        if data > args.batch or mesh["pp"] > args.layers:
            continue
        for experts in divisors(mesh["dp_shard"]) if args.ep and mesh["dp_replicate"] == 1 and mesh.get("cp", 1) == 1 else [1]:
            for zero in (0, 1, 2) if mesh["dp_shard"] == 1 and data > 1 else (0,):
                for m in [m for m in divisors(args.batch) if m == 1 or args.batch % (data * m) == 0]:
                    for again in (None, "selective", "layer"):
                        for schedule in args.schedules.split(",") if mesh["pp"] > 1 else (None,):
                            if schedule and m < mesh["pp"]:
                                continue
                            one = {k: v for k, v in mesh.items() if v > 1}
                            if experts > 1: one["ep"] = experts
                            if zero: one["zero"] = zero
                            if m > 1 or mesh["pp"] > 1: one["microbatches"] = m
                            if again: one["checkpoint"] = again
                            if schedule: one["schedule"] = schedule
                            yield one

def evaluate(args, one):
    with tempfile.TemporaryDirectory() as work:
        command = [args.tpgen, args.plan, "-o", work + "/out", "--ranks", "0", *args.rest]
        for name, value in one.items():
            command += ["-D", f"{name}={value}"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            return one, None, run.stderr.strip()
        plan = json.load(open(work + "/out/plan.json"))
        return one, plan["simulated_step"]["seconds"], ""

def main():
    p = argparse.ArgumentParser()
    p.add_argument("tpgen"), p.add_argument("plan"), p.add_argument("devices", type=int), p.add_argument("batch", type=int)
    p.add_argument("--layers", type=int, default=1000), p.add_argument("--cp", action="store_true"), p.add_argument("--ep", action="store_true")
    p.add_argument("--schedules", default="1f1b"), p.add_argument("--sample", type=int, default=0), p.add_argument("--jobs", type=int, default=2)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = p.parse_args(sys.argv[1:at])
    args.rest = sys.argv[at + 1:]
    every = list(settings(args))
    if args.sample and len(every) > args.sample:
        every = random.Random(1).sample(every, args.sample)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda one: evaluate(args, one), every))
    good = sorted((r for r in results if r[1] is not None), key=lambda r: r[1])
    why = {}
    for one, seconds, message in results:
        if seconds is None and " of memory" not in message:
            why.setdefault(message[-120:], one)
    print(f"{len(every)} tried, {len(good)} fit", file=sys.stderr)
    for message, one in list(why.items())[:10]:
        print("refused:", one, message, file=sys.stderr)
    for one, seconds, _ in good[:10]:
        print(f"{seconds:.4f}", one, file=sys.stderr)
    print(json.dumps({"settings": good[0][0], "seconds": good[0][1]} if good else None))

main()
