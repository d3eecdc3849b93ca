#!/usr/bin/env python3
"""How well the order of published steps can be simulated at all.   published_limits.py ROWS STEPS

ROWS: tests/golden/published_steps.tsv. STEPS: what tests/scripts/passes/published_steps.sh leaves with CASES=all: source, id,
device, measured and simulated seconds. Prints a table for docs/calibration.md, a line for each source:

  rows, spread   how many, and the largest MFU that was measured over the smallest
  reached        the rank correlation of simulated and measured MFU
  scatter        the standard deviation of log(step) among nearly equal runs, and how many pairs of them there are. Nearly equal are
                 two rows of one source that differ in nothing but the batch and the copies of the model: at most twice as many
                 devices, as many sequences a device and in a micro-batch within a quarter, and in a pipeline as many micro-batches.
                 "again": two rows of different sources that are equal but for the copies and the batch; what is simulated of
                 their difference is subtracted. Where there are fewer than two pairs of either, it is that of all of the device.
  possible       the rank correlation with what was measured that a model would reach which knows each mean exactly, if what is
                 measured scatters so: the median of 10,000 draws, and the range of nine in ten. The means are the measured values,
                 drawn together by as much as the scatter has added to their spread.
"""
import csv, itertools, math, random, sys

PEAK = {"A100": 312e12, "H100": 989e12}
COPIES = {"batch", "microbatches", "dp", "dp_shard", "dp_replicate", "zero", "reduce_each_batch"}


def read(rows, steps):
    seconds = {f[1]: float(f[4]) for f in csv.reader(open(steps), delimiter="\t")}
    out = []
    for f in csv.reader(open(rows), delimiter="\t"):
        if f[0].startswith("#") or f[1] not in seconds:
            continue
        at = dict(s.split("=") for s in f[10].split())
        r = dict(source=f[0], id=f[1], device=f[2], devices=int(f[3]), model=f[7], plan=f[9], at=at)
        of = float(f[8]) * 1e15 / r["devices"] / PEAK[r["device"]]
        r["mfu"], r["simulated"] = of / float(f[6]), of / seconds[f[1]]
        ways = math.prod(int(at.get(name, 1)) for name in ("tp", "pp", "cp"))
        r["each"] = int(at["batch"]) * ways / r["devices"]
        r["micro"] = r["each"] / int(at.get("microbatches", 1))
        # MosaicML's rows say in their names which cards: 40 or 80 GB.
        kind = f[1].split("-")[-1] if f[0].startswith("MosaicML") else ""
        r["like"] = (f[7], f[2], f[9], kind) + tuple(sorted((k, v) for k, v in at.items() if k not in COPIES))
        out.append(r)
    return out


def near(a, b):
    return max(a, b) <= 1.25 * min(a, b)


def nearly_equal(a, b):
    few = max(a["devices"], b["devices"]) <= 2 * min(a["devices"], b["devices"])
    same = "pp" not in a["at"] or a["at"].get("microbatches") == b["at"].get("microbatches")
    return few and same and near(a["each"], b["each"]) and near(a["micro"], b["micro"])


def differences(rows):
    """By source: the logarithms of measured MFU of nearly equal rows; and of those that another source has again."""
    own, again = {}, {}
    for a, b in itertools.combinations(rows, 2):
        if a["like"] != b["like"]:
            continue
        measured = math.log(a["mfu"] / b["mfu"])
        if a["source"] != b["source"]:
            for s in (a["source"], b["source"]):
                again.setdefault(s, []).append(measured - math.log(a["simulated"] / b["simulated"]))
        elif nearly_equal(a, b):
            own.setdefault(a["source"], []).append(measured)
    return own, again


def deviation(list_of):
    return math.sqrt(sum(x * x for x in list_of) / len(list_of) / 2)


def ranked(x):
    order = sorted(range(len(x)), key=lambda k: x[k])
    out, k = [0.0] * len(x), 0
    while k < len(order):
        e = k
        while e + 1 < len(order) and x[order[e + 1]] == x[order[k]]:
            e += 1
        for q in range(k, e + 1):
            out[order[q]] = (k + e) / 2
        k = e + 1
    return out


def spearman(a, b):
    a, b = ranked(a), ranked(b)
    mean = (len(a) - 1) / 2
    of = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return sum((x - mean) * (y - mean) for x, y in zip(a, b)) / of


def possible(mfu, sigma):
    x = [math.log(v) for v in mfu]
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / (len(x) - 1)
    if sigma * sigma >= variance:
        return "none: they scatter as much as they spread"
    kept = math.sqrt(1 - sigma * sigma / variance)
    true = [mean + kept * (v - mean) for v in x]
    draws = random.Random(1)
    found = sorted(spearman(true, [v + draws.gauss(0, sigma) for v in true]) for _ in range(10000))
    return f"{found[5000]:.2f}, {found[500]:.2f} to {found[9500]:.2f}"


def main():
    rows = read(*sys.argv[1:3])
    own, again = differences(rows)
    print("| source | rows | spread | reached | scatter, pairs | possible |\n|---|---|---|---|---|---|")
    for source in sorted({r["source"] for r in rows}):
        here = [r for r in rows if r["source"] == source]
        mfu, spread = [r["mfu"] for r in here], max(r["mfu"] for r in here) / min(r["mfu"] for r in here)
        pairs, kind = own.get(source, []), ""
        if source in again and len(pairs) < 3:
            pairs, kind = again[source], " again"
        if len(pairs) < 2:
            pairs = [x for s in own for x in own[s] if "_" + here[0]["device"] in s]
            kind = " of the device"
        line = f"| {source.replace('_', ' ')} | {len(here)} | {spread:.2f} |"
        if len(here) < 4:
            print(line + " | | |")
            continue
        line += f" {spearman([r['simulated'] for r in here], mfu):.2f} |"
        print(line + (f" {100 * deviation(pairs):.1f} %, {len(pairs)}{kind} | {possible(mfu, deviation(pairs))} |" if pairs else " | |"))


if __name__ == "__main__":
    main()
