"""The rotary embedding that transformers makes of a config.json: rotary.json has each variant, its inverse frequencies and the
factor of its cosines and sines, for sequences of 4 tokens or as many as its name says. make.py FOLDER, with transformers and
torch."""
import json, os, sys
import torch, transformers
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

BASE = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 64, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "model_type": "llama"}
yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
llama3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32, "rope_type": "llama3"}
short, long = [1.0, 1.0, 1.05, 1.25, 1.5, 1.5, 2.0, 2.25], [1.05, 1.25, 3.0, 5.5, 10.0, 20.0, 40.0, 64.0]
longrope = {"type": "longrope", "short_factor": short, "long_factor": long}
phi3 = {"model_type": "phi3", "rope_scaling": dict(longrope), "original_max_position_embeddings": 32}
dynamic = {"rope_scaling": {"type": "dynamic", "factor": 3.0}}
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
    "dynamic": dict(dynamic), "dynamic_at_128": dict(dynamic), "dynamic_at_129": dict(dynamic), "dynamic_at_500": {"rope_theta": 1e6, **dynamic},
    "dynamic_new_at_200": {"rope_parameters": {"rope_type": "dynamic", "factor": 1.5, "rope_theta": 5000.0, "original_max_position_embeddings": 32}},
    "longrope_at_32": dict(phi3), "longrope_at_33": dict(phi3), "longrope_no_original_at_128": {"model_type": "phi3", "rope_scaling": dict(longrope)},
    "longrope_no_original_at_8000": {"model_type": "phi3", "rope_scaling": dict(longrope), "max_position_embeddings": 16384},
    "longrope_inner_at_4000": {"model_type": "phi3", "max_position_embeddings": 8192, "rope_scaling": {**longrope, "original_max_position_embeddings": 32}},
    "longrope_su_at_64": {**phi3, "rope_scaling": {**longrope, "type": "su", "original_max_position_embeddings": 32}}, "longrope_yarn_at_64": {**phi3, "rope_scaling": {**longrope, "type": "yarn"}},
    "longrope_factor_at_64": {**phi3, "rope_scaling": {**longrope, "factor": 32.0}}, "longrope_least_at_8": {**phi3, "rope_scaling": {**longrope, "factor": 0.5}},
    "longrope_attention_at_64": {**phi3, "rope_scaling": {**longrope, "attention_factor": 1.19}},
    "longrope_part_at_64": {**phi3, "partial_rotary_factor": 0.5, "rope_scaling": {**longrope, "short_factor": short[:4], "long_factor": long[:4]}},
    "longrope_llama_at_64": {"rope_parameters": {"rope_type": "longrope", "short_factor": short, "long_factor": long, "rope_theta": 777.0,
                             "original_max_position_embeddings": 32}},
    "llama3_no_original": {"rope_scaling": {k: v for k, v in llama3.items() if k != "original_max_position_embeddings"}},
}
rows = {}
for name, edit in V.items():
    config = {**BASE, **edit}
    c = AutoConfig.for_model(**json.loads(json.dumps(config)))
    r = (Phi3RotaryEmbedding if c.model_type == "phi3" else LlamaRotaryEmbedding)(c)
    r(torch.zeros(1), torch.arange(int(name.partition("_at_")[2] or 4))[None])
    rows[name] = {"config": config, "inverse_frequencies": [float(x) for x in r.inv_freq], "factor": float(r.attention_scaling)}
with open(os.path.join(sys.argv[1], "rotary.json"), "w") as f:
    f.write('{\n"transformers": "%s",\n"variants": {\n' % transformers.__version__ + ",\n".join(f'{json.dumps(n)}: {json.dumps(r)}' for n, r in rows.items()) + "\n}}\n")
