"""drive.py toy | samples DATA | refuses: calls the module `model`, without NumPy where that is missing. Prints losses."""
import array
import json
import struct
import sys

import model

def samples(path):
    """The arrays of a safetensors file, as lists of rows."""
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    rows = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = array.array({"F32": "f", "I64": "q", "I32": "i"}[entry["dtype"]], data[8 + n + begin:8 + n + end])
        width = len(flat) // entry["shape"][0]
        rows[name] = [flat[i:i + width] for i in range(0, len(flat), width)]
    return rows

def batch(rows, first, count):
    """So many samples, in the shapes of the inputs."""
    given = {}
    for name, (_, shape, _) in model.INPUTS.items():
        flat = array.array(rows[name][0].typecode)
        for row in rows[name][first:first + count]:
            flat.extend(row)
        code = flat.typecode
        given[name] = memoryview(flat).cast("B").cast(code, (len(rows[name][first:first + count]),) + tuple(shape[1:]))
    return given

def refused(what, call):
    try:
        call()
    except model.Error as error:
        print(what, error)
    else:
        sys.exit(f"{what}: taken")

with model.Model(threads=1) as m:
    if sys.argv[1] == "toy":
        losses = [m.step() for _ in range(10)]
        m.scale_learning_rate(0)
        losses.append(m.step())
        before = losses[-1]
        assert m.step() == before and m.steps == 12
        m.scale_learning_rate(2)
        m.step()
        assert m.step() != before
        first, second = m.forward()["loss"], m.forward()["loss"]
        assert first.tobytes() == second.tobytes()
        weight = m.tensors()["in_proj.weight"]
        assert weight["part"] == (16, 10) and weight["shape"] == (32, 10) and weight["role"] == "parameter"
        weight["array"][0, 0] = 7.5
        assert m.tensor("in_proj.weight")[0, 0] == 7.5
        if weight["first"] == (0, 0):
            print(*["%.9g" % loss for loss in losses[:10]], sep="\n")
    elif sys.argv[1] == "samples":
        rows = samples(sys.argv[2])
        for step in range(18):
            print("%.9g" % m.step(**batch(rows, step % 6 * 4, 4)))
        m.save(sys.argv[3])
    else:
        rows = samples(sys.argv[2])
        good = batch(rows, 0, 4)
        refused("names", lambda: m.step(input=good["input"]))
        refused("type", lambda: m.step(**{name: array.array("d", [0] * 4) for name in good}))
        refused("shape", lambda: m.step(**dict(good, input=memoryview(bytes(4 * 4 * 5)).cast("f", (4, 5)))))
        refused("batches", lambda: m.step(good, good))
        refused("file", lambda: m.load("none"))
        refused("rate", lambda: m.scale_learning_rate(-1))
        refused("label", lambda: m.step(**dict(good, labels=memoryview(array.array("q", [9] * 4)))))
