#!/usr/bin/env python3
"""The state_dict of a torch.export archive as safetensors: archive_weights.py FILE.pt2 TO PREFIX; names lose the prefix. Its
tensors are float32 and in row-major order."""
import json
import struct
import sys
import zipfile

archive, to, prefix = sys.argv[1:]
header, data = {}, b""
with zipfile.ZipFile(archive) as files:
    config = next(name for name in files.namelist() if name.endswith("data/weights/model_weights_config.json"))
    for name, about in json.loads(files.read(config))["config"].items():
        meta = about["tensor_meta"]
        if meta["dtype"] != 7 or meta["storage_offset"]["as_int"]:
            sys.exit(f"{name}: no float32")
        raw = files.read(config.rsplit("/", 1)[0] + "/" + about["path_name"])
        header[name.removeprefix(prefix)] = {"dtype": "F32", "shape": [size["as_int"] for size in meta["sizes"]],
                                             "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
text = json.dumps(header).encode()
with open(to, "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + data)
