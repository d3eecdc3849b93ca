"""Makes a Llama of random weights, for tpgen and for llama.cpp, and times llama.cpp; decode.sh calls it.

    decode_llama_cpp.py make FOLDER SIZE
    decode_llama_cpp.py run FILE.gguf THREADS PROMPT TOKENS     prints tokens a second, of the prompt and after it
"""
import json
import os
import sys
import time

SIZES = {  # dim, layers, heads, heads of keys and values, hidden, vocabulary
    "1b": (2048, 16, 32, 8, 8192, 32000),
    "250m": (1024, 16, 16, 8, 2816, 32000),
}


def interleaved(w, heads):
    """Rows of queries or keys in the order in which llama.cpp rotates them: pairs side by side."""
    rows, dim = w.shape
    return w.reshape(heads, 2, rows // heads // 2, dim).swapaxes(1, 2).reshape(rows, dim)


def make(folder, size):
    import gguf
    import numpy as np

    dim, layers, heads, kv_heads, hidden, vocab = SIZES[size]
    head = dim // heads
    draw = np.random.default_rng(1)

    def matrix(rows, columns):  # of numbers that are exact in bfloat16
        w = draw.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
        return ((w.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)

    ones = np.ones(dim, dtype=np.float32)
    tensors = [("model.embed_tokens", "token_embd", matrix(vocab, dim), 0), ("lm_head", "output", matrix(vocab, dim), 0),
               ("model.norm", "output_norm", ones, 0)]
    for i in range(layers):
        of, to = f"model.layers.{i}.", f"blk.{i}."
        for name, other, rows, columns, turned in (
                ("self_attn.q_proj", "attn_q", dim, dim, heads), ("self_attn.k_proj", "attn_k", kv_heads * head, dim, kv_heads),
                ("self_attn.v_proj", "attn_v", kv_heads * head, dim, 0), ("self_attn.o_proj", "attn_output", dim, dim, 0),
                ("mlp.gate_proj", "ffn_gate", hidden, dim, 0), ("mlp.up_proj", "ffn_up", hidden, dim, 0),
                ("mlp.down_proj", "ffn_down", dim, hidden, 0)):
            tensors.append((of + name, to + other, matrix(rows, columns), turned))
        tensors.append((of + "input_layernorm", to + "attn_norm", ones, 0))
        tensors.append((of + "post_attention_layernorm", to + "ffn_norm", ones, 0))

    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as f:
        json.dump({"model_type": "llama", "hidden_size": dim, "num_hidden_layers": layers, "num_attention_heads": heads,
                   "num_key_value_heads": kv_heads, "intermediate_size": hidden, "vocab_size": vocab,
                   "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                   "tie_word_embeddings": False, "hidden_act": "silu"}, f)
    header, at = {}, 0
    for name, _, w, _ in tensors:
        header[name + ".weight"] = {"dtype": "BF16", "shape": list(w.shape), "data_offsets": [at, at + 2 * w.size]}
        at += 2 * w.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, _, w, _ in tensors:
            f.write((w.view(np.uint32) >> 16).astype(np.uint16).tobytes())

    for kind, file_type in (("F32", 0), ("BF16", 32), ("Q8_0", 7)):
        out = gguf.GGUFWriter(f"{folder}/{kind}.gguf", "llama", use_temp_file=False)
        out.add_context_length(4096)
        out.add_embedding_length(dim)
        out.add_block_count(layers)
        out.add_feed_forward_length(hidden)
        out.add_rope_dimension_count(head)
        out.add_head_count(heads)
        out.add_head_count_kv(kv_heads)
        out.add_layer_norm_rms_eps(1e-5)
        out.add_rope_freq_base(10000.0)
        out.add_file_type(file_type)
        out.add_vocab_size(vocab)
        out.add_tokenizer_model("no_vocab")
        for _, name, w, turned in tensors:
            w = interleaved(w, turned) if turned else w
            if w.ndim == 1 or kind == "F32":
                out.add_tensor(name + ".weight", w)
                continue
            stored = gguf.GGMLQuantizationType[kind]
            out.add_tensor(name + ".weight", gguf.quants.quantize(w, stored), raw_dtype=stored)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()


def run(file, threads, prompt, tokens):
    from llama_cpp import Llama

    model = Llama(file, n_ctx=prompt + tokens + 8, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    ids = [3 + 7 * i % 1000 for i in range(prompt)]
    model.eval(ids[:8])  # the first call makes its threads
    model.reset()
    begin = time.perf_counter()
    model.eval(ids)
    first = time.perf_counter()
    for _ in range(tokens):
        model.eval([model.sample(temp=0)])
    print(f"{prompt / (first - begin):.1f} {tokens / (time.perf_counter() - first):.2f}")


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    run(sys.argv[2], *(int(x) for x in sys.argv[3:6]))
