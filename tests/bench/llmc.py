#!/usr/bin/env python3
"""Weights and tokens of llm.c, for tests/bench/gpt2.sh. Needs Python alone.

  llmc.py write MODEL.bin TOKENS.bin   random ones: dim 512, 8 layers, 8 heads, 1,024 positions, 50,257 tokens
  llmc.py convert MODEL.bin TO.safetensors [CONFIG.json]
      the weights under Hugging Face's names, and the model's config.json. MODEL.bin is a checkpoint as
      train_gpt2.py writes it: magic 20240326, version 3 (float32), a vocabulary filled up with rows that
      nothing uses, weights [out, in]. Hugging Face's Conv1D has them [in, out], and no such rows."""
import array
import json
import random
import struct
import sys

MAGIC, VERSION, TOKENS_MAGIC = 20240326, 3, 20240520
HEAD = 256  # numbers of 32 bits before the weights, and before the tokens


# The tensors in the order of the file: a name, of each layer or of the model alone, rows, columns, and whether
# Hugging Face has it the other way round.
def layout(length, rows, layers, dim):
    each = [("ln_1.weight", 1, dim), ("ln_1.bias", 1, dim), ("attn.c_attn.weight", 3 * dim, dim),
            ("attn.c_attn.bias", 1, 3 * dim), ("attn.c_proj.weight", dim, dim), ("attn.c_proj.bias", 1, dim),
            ("ln_2.weight", 1, dim), ("ln_2.bias", 1, dim), ("mlp.c_fc.weight", 4 * dim, dim),
            ("mlp.c_fc.bias", 1, 4 * dim), ("mlp.c_proj.weight", dim, 4 * dim), ("mlp.c_proj.bias", 1, dim)]
    yield "wte.weight", rows, dim, False
    yield "wpe.weight", length, dim, False
    for name, n, m in each:
        for i in range(layers):
            yield f"h.{i}.{name}", n, m, n > 1
    yield "ln_f.weight", 1, dim, False
    yield "ln_f.bias", 1, dim, False


def write(model, tokens):
    length, vocab, layers, heads, dim, rows = 1024, 50257, 8, 8, 512, 50304
    draw = random.Random(1)
    with open(model, "wb") as file:
        file.write(struct.pack("<8i", MAGIC, VERSION, length, vocab, layers, heads, dim, rows) + bytes(4 * HEAD - 32))
        for name, n, m, _ in layout(length, rows, layers, dim):
            numbers = array.array("f", [float(name.endswith("weight"))]) * (n * m)
            if n > 1:  # uniform, with a deviation of 0.02
                scale = 0.02 * 12 ** 0.5 / 65536
                numbers = array.array("f", ((x - 32767.5) * scale for x in array.array("H", draw.randbytes(2 * n * m))))
            file.write(numbers.tobytes())
    count = 64 * length + 1
    with open(tokens, "wb") as file:  # the small numbers are more frequent, as in a text
        file.write(struct.pack("<3i", TOKENS_MAGIC, 1, count) + bytes(4 * HEAD - 12))
        array.array("H", (int(vocab * draw.random() ** 4) for _ in range(count))).tofile(file)


def convert(model, to, config=None):
    with open(model, "rb") as file:
        magic, version, length, vocab, layers, heads, dim, rows = struct.unpack("<8i", file.read(32))
        if (magic, version) != (MAGIC, VERSION):
            sys.exit(f"{model}: it begins with {magic}, {version}, not with {MAGIC}, {VERSION}: no float32 weights of llm.c")
        file.seek(4 * HEAD)
        head, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
        for name, n, m, is_turned in layout(length, rows, layers, dim):
            numbers = array.array("f")
            numbers.fromfile(file, n * m)
            shape = [m] if n == 1 else [n, m]
            if is_turned:
                shape, turned = [m, n], array.array("f")
                for column in range(m):
                    turned.extend(numbers[column::m])
                numbers = turned
            elif name == "wte.weight":
                shape, numbers = [vocab, dim], numbers[:vocab * dim]
            parts.append(numbers)
            head["transformer." + name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(numbers)]}
            at += 4 * len(numbers)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(to, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for numbers in parts:
            numbers.tofile(file)
    if config:
        with open(config, "w") as file:
            json.dump({"model_type": "gpt2", "n_embd": dim, "n_layer": layers, "n_head": heads, "vocab_size": vocab,
                       "n_positions": length, "n_inner": None, "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0,
                       "embd_pdrop": 0.0, "attn_pdrop": 0.0, "activation_function": "gelu_new",
                       "tie_word_embeddings": True}, file)


{"write": write, "convert": convert}[sys.argv[1]](*sys.argv[2:])
