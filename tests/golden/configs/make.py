"""The rotary embedding that transformers makes of a config.json: rotary.json has each variant, its inverse frequencies and the
factor of its cosines and sines. make.py FOLDER, with transformers and torch."""
import json, os, sys
import torch, transformers
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

BASE = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 64, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "model_type": "llama"}
yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
llama3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32, "rope_type": "llama3"}
V = {
    "plain": {}, "theta": {"rope_theta": 500000.0}, "theta_whole": {"rope_theta": 1000000}, "null": {"rope_parameters": None, "rope_theta": 500000.0},
    "new": {"rope_parameters": {"rope_theta": 123456.0}}, "new_typed": {"rope_parameters": {"rope_type": "default", "rope_theta": 777.0}},
    "theta_in_both": {"rope_theta": 777.0, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "linear": {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4}},
    "linear_new": {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}},
    "both": {"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "both_yarn": {"rope_scaling": dict(yarn), "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}},
    "both_empty": {"rope_theta": 300.0, "rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}},
    "yarn": {"rope_scaling": dict(yarn)}, "yarn_finetuned": {"rope_scaling": {**yarn, "finetuned": True}},
    "yarn_no_original": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "yarn_outside": {"original_max_position_embeddings": 32, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "yarn_outside_wins": {"original_max_position_embeddings": 16, "rope_scaling": dict(yarn)},
    "yarn_no_factor": {"rope_scaling": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 32}},
    "yarn_attention": {"rope_scaling": {**yarn, "attention_factor": 0.8, "beta_fast": 16, "beta_slow": 2}},
    "yarn_mscale": {"rope_scaling": {**yarn, "mscale": 1.0, "mscale_all_dim": 0.8}}, "yarn_mscale_one": {"rope_scaling": {**yarn, "mscale": 0.7}},
    "yarn_truncate": {"rope_scaling": {**yarn, "truncate": False}}, "yarn_truncate_true": {"rope_scaling": {**yarn, "truncate": True}},
    "yarn_truncate_far": {"rope_theta": 150000.0, "rope_scaling": {**yarn, "truncate": False, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}},
    "yarn_null": {"rope_scaling": {**yarn, "attention_factor": None, "beta_fast": None, "beta_slow": None}},
    "yarn_new": {"rope_parameters": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "rope_theta": 50000.0}},
    "llama3": {"rope_theta": 500000.0, "rope_scaling": dict(llama3)}, "llama3_both_types": {"rope_scaling": {**llama3, "type": "llama3"}},
    "llama3_new": {"rope_parameters": {**llama3, "rope_theta": 500000.0}},
    "llama3_no_original": {"rope_scaling": {k: v for k, v in llama3.items() if k != "original_max_position_embeddings"}},
}
rows = {}
for name, edit in V.items():
    config = {**BASE, **edit}
    c = AutoConfig.for_model(**json.loads(json.dumps(config)))
    r = LlamaRotaryEmbedding(c)
    rows[name] = {"config": config, "inverse_frequencies": [float(x) for x in r.inv_freq], "factor": float(r.attention_scaling)}
with open(os.path.join(sys.argv[1], "rotary.json"), "w") as f:
    f.write('{\n"transformers": "%s",\n"variants": {\n' % transformers.__version__ + ",\n".join(f'{json.dumps(n)}: {json.dumps(r)}' for n, r in rows.items()) + "\n}}\n")
