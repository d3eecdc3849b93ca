-- The settings that several plans have: {name, default, what it does, type =, choices =, search =}. search: each value
-- gives the same numbers, so tpgen PLAN.lua --search may vary it: what it is of the parallel plan, or the values to try, and
-- with which other settings it counts. tpgen PLAN.lua --help lists those of a plan.

local M = {}

M.files = {
  title = "files",
  {"config", nil, "a Hugging Face model's config.json: the shape of the model", type = "text"},
}

-- The shape of a model. M.model{"dim", {"eps", 1e-6}, {"bias", true, "projections have a bias"}}: rows of this table by their
-- names, with another default, or rows of the plan's own.
local SHAPE = {
  {"dim", nil, "the width of the model", type = "size"},
  {"n_layers", nil, "layers", type = "size"},
  {"n_heads", nil, "heads of attention", type = "size"},
  {"n_kv_heads", function(a) return a.n_heads end, "heads of keys and values; by default n_heads", type = "size"},
  {"head_dim", function(a) return a.dim // a.n_heads end, "the width of a head; by default dim / n_heads", type = "size"},
  {"hidden", nil, "the width of the feed-forward network", type = "size"},
  {"vocab", nil, "tokens of the vocabulary", type = "size"},
  {"positions", nil, "positions that the model learns", type = "size"},
  {"seq", nil, "tokens of a sequence", type = "size"},
  {"theta", 10000, "the base of the rotary embedding's angles", type = "number"},
  {"eps", 1e-5, "added to the variance in norms"},
  {"tied", false, "the output has the embedding's weight"},
  {"pad", nil, "the token whose row of the embedding learns nothing; by default config.json's", type = "count"},
  {"window", nil, "tokens that each token sees; by default all", type = "size"},
  {"dropout", 0, "dropout of each layer's outputs", type = "number"},
  {"attention_dropout", 0, "dropout of attention's weights", type = "number"},
  {"qkv_bias", true, "q, k and v have a bias"},
}

function M.model(rows)
  local by_name, section = {}, {title = "the model"}
  for _, row in ipairs(SHAPE) do by_name[row[1]] = row end
  for i, row in ipairs(rows) do
    local known = by_name[type(row) == "string" and row or row[1]]
    if type(row) == "string" then
      row = known or error("no setting of a model's shape is called " .. row)
    elseif row[3] == nil and known then
      row = {row[1], row[2], known[3], type = known.type}
    end
    section[i] = row
  end
  return section
end

M.memory = {"memory", nil, "of a rank, such as 80GiB; by default the cluster's, else no limit", type = "text"}

-- The mesh, how the batch and the parameters are cut over it, and the precision: lib/parallel.lua.
M.mesh = {
  title = "the mesh, and what is cut over it",
  {"dp", nil, "ranks that share the batch; by default dp_replicate times dp_shard", type = "size",
    search = "data"},
  {"dp_replicate", 1, "copies of the parameters among them", search = "copies"},
  {"dp_shard", nil, "ranks over which parameters, gradients and the optimizer's state are cut; by default dp / dp_replicate, "
    .. "where dp is given, else 1", type = "size", search = "shards"},
  {"tp", 1, "ranks that share each layer", search = "tensor"},
  {"pp", 1, "stages of a pipeline, each on ranks of its own", search = "stages"},
  {"cp", 1, "ranks that share each sequence", search = "sequences"},
  {"ep", 1, "ranks of data parallel that share the experts", search = {kind = "experts", without = {"dp_replicate", "cp"}}},
  {"batch", nil, "sequences or samples of a step, of all ranks together; by default dp", type = "size"},
  {"context", "ring", "how attention gets the keys of other ranks of cp", choices = {"ring", "allgather", "ulysses"},
    search = {"allgather", "ulysses", with = "cp"}},
  {"ulysses", 1, "neighbours of cp that exchange heads; context is between groups of them",
    search = {divides = "cp", with = "cp"}},
  {"balance", nil, "the order of the tokens over cp; headtail: each rank has as much of a causal attention to do",
    choices = {"headtail"}, search = {"headtail", with = "cp"}},
  {"reshard_after_forward", "default", "whether gathered parameters are given up after the forward; a number: the layers "
    .. "keep parts, and gather them among so many ranks", choices = {"default", "always", "never"}, type = "size",
    search = {"always", "never", with = {"dp_shard", "cp"}, without = "zero"}},
  {"zero", 0, "without dp_shard: 1 cuts the optimizer's state over dp, 2 the gradients too", choices = {0, 1, 2},
    search = {kind = "zero", 1, 2, with = {"dp_replicate", "cp"}, without = {"dp_shard", "reshard_after_forward"}}},
  {"dtype", "float32", "bfloat16: float32 weights, bfloat16 arithmetic; float8: so, and the products of the layers' Linear "
    .. "modules in float8; tf32: products may round their operands to TF32",
    choices = {"float32", "tf32", "bfloat16", "float8"}},
  {"float8", "tensorwise", "of dtype=float8: a scale for each tensor, or for each row of terms", choices = {"tensorwise", "rowwise"}},
  {"device", nil, "of the simulated step, in its usual nodes of 8: H100, H200, A100, A100-40GB, B200", type = "text"},
  {"cluster", nil, "where the ranks run: dgx-a100, dgx-a100-40gb, dgx-h100, dgx-h200, dgx-b200, dgx-h100:16 of 16 nodes, or a file, .json",
    type = "text"},
  M.memory,
  {"schedule", "1f1b", "of pp: a schedule's name (tpgen --schedule), or a file of it, .csv", type = "text",
    search = {kind = "schedule", "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv_zero_bubble", "dualpipe_v",
      with = "pp"}},
  {"stages", nil, "of pp: stages of each rank; by default the schedule's least", type = "size",
    search = {kind = "stages_of_rank", 2, 3, 4, 5, 8, with = "pp"}},
  {"microbatches", nil, "equal parts in which a step goes through its batch; by default 1, with pp as many as ranks",
    type = "size", search = "microbatches"},
}

-- Tensor parallel in pieces, for plans whose layers have it.
M.async_tp = {
  title = M.mesh.title,
  {"async_tp", nil, "what tp gathers and reduces travels in pieces, beside the products; a number: so many pieces",
    type = "size", choices = {true, false}, search = {true, with = "tp"}},
}

-- Sequence parallel, for plans in which it is a choice.
M.sp = {
  title = M.mesh.title,
  {"sp", false, "norms and dropout are cut along the sequence over tp", search = {true, with = "tp"}},
}

-- Of language models: lib/training.lua.
M.text = {
  title = "training",
  {"masked", false, "only files of samples and conversations are data; without it texts of tokens are, too"},
}

M.documents = {
  title = "documents",
  {"documents", nil, "the token that ends a document; by default the text is one document", type = "count"},
  {"longest", nil, "with documents: the tokens of the longest one", type = "size"},
  {"packed", false, "a sample is several conversations, one behind the other, that do not see each other"},
}

-- Adapters: match is the layers that have one by default.
function M.adapters(match)
  return {title = "adapters",
    {"lora", nil, "the rank of adapters, which are trained in the place of the model", type = "size"},
    {"lora_alpha", function(a) return a.lora and 2 * a.lora end, "their factor, times the rank; by default 2 lora",
      type = "number"},
    {"lora_match", match, "the layers that have one: a pattern"},
    {"lora_dropout", 0, "dropout of their inputs", type = "number"},
    {"weight_dtype", "float32", "with lora: how the frozen matrices are stored; nf4 is QLoRA",
      choices = {"float32", "bfloat16", "int8", "nf4"}},
  }
end

-- Of training: lib/training.lua.
M.training = {
  title = "training",
  {"lr", 3e-4, "AdamW's rate"},
  {"beta1", 0.9, "AdamW's decay of the mean gradient"},
  {"beta2", 0.95, "AdamW's decay of the mean square"},
  {"weight_decay", 0.1, "AdamW's"},
  {"clip", nil, "the greatest norm of all gradients", type = "number"},
  {"warmup", nil, "steps in which the rate rises; then it falls along a cosine", type = "count"},
  {"least", 0, "with warmup: the part of the rate at the end", type = "number"},
  {"steps", 20, "steps of the training"},
  {"seed", 0, "of initial weights, inputs that are drawn and dropout", type = "whole"},
  {"shuffle", nil, "a seed: each epoch has an order of its own; true: the seed of the training", type = "whole",
    choices = {true, false}},
  {"drop_last", nil, "whether samples behind the last whole batch of an epoch are left out, or are a smaller batch", type = "flag"},
  {"accumulate", nil, "batches of a step", type = "size"},
  {"accumulate_mean", nil, "batches: a step's loss is the mean of their means; else the mean over all labels",
    choices = {"batches", "labels"}},
  {"reduce_each_batch", nil, "whether each batch's gradients are reduced, or their sum; by default by memory and step", type = "flag"},
  {"checkpoint", nil, "layer: the backward keeps only the inputs of the layers; selective: and products, attention, sums over ranks; "
    .. "memory: all that fits in a rank's memory", choices = {"layer", "selective", "memory"},
    search = {kind = "recompute", "selective", "layer", "memory"}},
  {"bucketing", nil, "which collectives are joined", choices = {"units", "greedy", "none"}, search = {"greedy"}},
  {"bucket_mb", nil, "the most MB of a bucket", type = "number"},
  {"prefetch", nil, "how many layers ahead parameters are gathered", choices = {0, 1, 2, 3, 4},
    search = {0, with = {"dp_shard", "cp"}, without = "zero"}},
  {"overlap", false, "collectives run beside arithmetic on CPUs, too: for ranks on several machines"},
  {"validate_every", nil, "steps between validations (run.sh --validate)", type = "size"},
}

return M
