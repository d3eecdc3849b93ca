"""Sequences in the slots of a module that generates: their greedy tokens are those of a file of transformers.

    sequences.py GENERATE.json WEIGHTS"""
import json
import sys

from module import VOCABULARY, SLOTS, Error, Model


def best(row):
    return max(range(VOCABULARY), key=lambda i: row[i])


def continue_all(model, runs):
    """Side by side, a slot for each."""
    made = [[best(model.begin(slot, run["prompt"]))] for slot, run in enumerate(runs)]
    while len(made[0]) < len(runs[0]["tokens"]):
        for slot, row in model.decode({slot: tokens[-1] for slot, tokens in enumerate(made)}).items():
            made[slot].append(best(row))
    for slot, run in enumerate(runs):
        assert made[slot] == run["tokens"], (made[slot], run["tokens"])
        assert model.length(slot) == len(run["prompt"]) + len(run["tokens"]) - 1


def refused(words, call):
    try:
        call()
    except Error as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


with Model(weights=sys.argv[2]) as model:
    with open(sys.argv[1]) as file:
        all_runs = json.load(file)["runs"]
    for first in range(0, len(all_runs), SLOTS):
        continue_all(model, all_runs[first:first + SLOTS])
    prompt = max((run["prompt"] for run in all_runs), key=len)
    whole = list(model.begin(0, prompt))
    model.begin(1, prompt[:3])
    apart = max(abs(a - b) for a, b in zip(model.extend(1, prompt[3:]), whole))
    assert apart < 1e-5, apart
    model.begin(0, prompt[:-1])  # and the last one with a slot that goes on
    apart = max(abs(a - b) for a, b in zip(model.decode({0: prompt[-1], 1: 1})[0], whole))
    assert apart < 1e-5, apart
    model.reset(0)
    assert model.length(0) == 0
    refused("there is no slot 9", lambda: model.begin(9, [1]))
    refused("is not a token", lambda: model.begin(0, [VOCABULARY]))
    refused("is given no tokens", lambda: model.begin(0, []))
    refused("do not fit into a context of 32", lambda: model.begin(0, [1] * 33))
    refused("no forward of its own", model.forward)
    model.begin(0, [1] * 32)
    refused("as many as its context", lambda: model.decode({0: 1}))
print("equal")
