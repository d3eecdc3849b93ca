-- GPT-2 from a Hugging Face folder or from the start: learned positions, LayerNorm, tied output, weights
-- [in, out] with q, k, v side by side.
--
--   tpgen plans/gpt2.lua -o out/ -D config=gpt2/config.json -D tp=2 -D seq=1024
--   out/run.sh --weights gpt2 --data train.bin
--
-- tpgen plans/gpt2.lua --help lists the settings.

local families, shared = require "lib.families", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local known = args.config and families.read(args.config, {"gpt2"}, {{"activation_function", "gelu_new"},
  {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}})
  or {dim = 64, n_layers = 2, n_heads = 4, vocab = 256, positions = 64, batch = 4}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads",
    {"hidden", function(a) return 4 * a.dim end, "the width of the feed-forward network; by default 4 dim", type = "size"},
    "vocab", "positions",
    {"seq", function(a) return a.positions end, "tokens of a sequence; by default all positions", type = "size"},
    "eps",
    {"dropout", 0, "dropout of the layers' outputs, resid_pdrop of the file", type = "number"},
    {"embed_dropout", 0, "dropout of the embeddings, embd_pdrop of the file", type = "number"},
    {"attention_dropout", 0, "dropout of attention's weights, attn_pdrop of the file", type = "number"},
    {"tied", true},
  },
  shared.documents, shared.mesh, shared.sp, shared.adapters("c_attn"), shared.text, shared.training,
}, known)
local dim, n_layers, n_heads, hidden, vocab = args.dim, args.n_layers, args.n_heads, args.hidden, args.vocab
local positions, seq, eps, dropout, tied = args.positions, args.seq, args.eps, args.dropout, args.tied
local embed_dropout, attention_dropout = args.embed_dropout, args.attention_dropout
local p = parallel.open(args)
local sp, has_documents = args.sp, args.documents or args.packed

-- ------------------------------------------------------------------------------------- the model

local INNER, LAST = 0.02, 0.02 / math.sqrt(2 * n_layers)

local function conv1d(outputs, inputs, deviation)
  return nn.Conv1D(outputs, inputs, {init = nn.init.normal(0, deviation)})
end

local Attention = nn.module("Attention", function(self)
  self.c_attn, self.c_proj = conv1d(3 * dim, dim, INNER), conv1d(dim, dim, LAST)
  function self:forward(x, documents)
    local q, k, v = self.c_attn(x):chunk(3, -1)
    local function heads(y) return attention.split(y, dim // n_heads) end
    local y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v),
      {is_causal = true, dropout_p = attention_dropout, documents = documents})
    return self.c_proj(attention.join(y))
  end
end)

local MLP = nn.module("MLP", function(self)
  self.c_fc, self.c_proj = conv1d(hidden, dim, INNER), conv1d(dim, hidden, LAST)
  function self:forward(x) return self.c_proj(F.gelu(self.c_fc(x), {approximate = "tanh"})) end
end)

local Block = nn.module("Block", function(self)
  self.ln_1, self.ln_2 = nn.LayerNorm(dim, {eps = eps}), nn.LayerNorm(dim, {eps = eps})
  self.attn, self.mlp, self.drop = Attention(), MLP(), nn.Dropout(dropout)
  function self:forward(x, documents)
    x = x + self.drop(self.attn(self.ln_1(x), documents))
    return x + self.drop(self.mlp(self.ln_2(x)))
  end
end)

local GPT2 = nn.module("GPT2", function(self)
  self.wte = nn.Embedding(vocab, dim, {init = nn.init.normal(0, INNER)})
  self.wpe = nn.Embedding(positions, dim, {init = nn.init.normal(0, INNER)})
  self.drop = nn.Dropout(embed_dropout)
  self.h = attention.layers(n_layers, Block)
  self.ln_f = nn.LayerNorm(dim, {eps = eps})
  self.lm_head = tied and attention.Tied() or nn.Linear(dim, vocab, {bias = false})
  function self:forward(ids)
    local places, documents = ids:positions(), nil
    if has_documents then documents, places = ids:documents() end -- positions begin anew in each document
    local x = self.drop(self.wte(ids) + self.wpe(places))
    for _, block in ipairs(self.h) do x = block(x, documents) end
    x = self.ln_f(x)
    if tied then return self.lm_head(x, self.wte.weight) end
    return self.lm_head(x)
  end
end)

-- -------------------------------------------------------------------------------------- the plan

-- With sp the norms, dropout and what lies between the products are cut along the sequence: all of it is gathered
-- for the first product of attention and of the feed-forward network, and the sum after the last one is cut again.
local cut = sp and Shard(1) or Replicate()
local function gathered(...)
  return sp and PrepareModuleInput{input_layouts = {Shard(1), ...}, desired_input_layouts = {Replicate(), ...}} or nil
end
local model = parallelize(GPT2(), p.mesh.tp, {
  wte = Rowwise{output_layouts = cut},
  ln_f = sp and SequenceParallel() or nil,
  lm_head = attention.output(tied, cut),
  ["h.*"] = {
    ln_1 = sp and SequenceParallel() or nil, ln_2 = sp and SequenceParallel() or nil,
    attn = gathered(has_documents and false or nil), mlp = gathered(),
    ["attn.c_attn"] = Colwise{parts = 3}, ["attn.c_proj"] = Rowwise{output_layouts = cut},
    ["mlp.c_fc"] = Colwise(), ["mlp.c_proj"] = Rowwise{output_layouts = cut},
  },
})
training.adapt(args, model, "CAUSAL_LM")
p.pipeline(model)
p.context(model)
p.shard(model, {model.wte, model.wpe}, model.h, {model.ln_f, model.lm_head})

return train(training.next_token(args, p, model, vocab, seq,
  training.prefixed("transformer.", {"wte.weight", "wpe.weight", "ln_f.*", "h.*.**"}),
  {documents = args.documents, longest = args.longest}, args.packed))
