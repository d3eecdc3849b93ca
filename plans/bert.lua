-- BERT from a Hugging Face folder or from the start: the masked language model, or with -D classes=3 the
-- classification of sequences.
--
--   tpgen plans/bert.lua -o out/ -D config=bert-base-uncased/config.json -D tp=2 -D seq=128
--   out/run.sh --weights bert-base-uncased --data batches.safetensors
--
-- The data has input_ids, token_type_ids, attention_mask (1 for each token that is there) and labels:
-- -100 at tokens that count for nothing, or one class a sequence. tpgen
-- plans/bert.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local function from_config(path)
  local config = hugging_face.config(path, {"bert"})
  local need, at = config.need, config.at
  config.only("hidden_act", "gelu")
  config.only("position_embedding_type", "absolute")
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"),
    n_heads = need("num_attention_heads"), hidden = need("intermediate_size"),
    vocab = need("vocab_size"), positions = need("max_position_embeddings"),
    types = need("type_vocab_size"), eps = at.layer_norm_eps, dropout = at.hidden_dropout_prob,
    attention_dropout = at.attention_probs_dropout_prob, pad = config.pad(need("vocab_size"), 0),
  }
end

local known = args.config and from_config(args.config)
  or {dim = 64, n_layers = 2, n_heads = 4, hidden = 128, vocab = 256, positions = 64, batch = 4}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "hidden", "vocab", "positions",
    {"types", 2, "types of tokens"},
    {"seq", function(a) return a.positions end, "tokens of a sequence; by default all positions", type = "size"},
    {"eps", 1e-12}, "dropout", "attention_dropout",
    {"classes", nil, "classes of sequences; without it the masked language model is trained", type = "size"},
    "pad",
  },
  shared.mesh, shared.training,
}, known)
local dim, n_layers, n_heads, hidden, vocab = args.dim, args.n_layers, args.n_heads, args.hidden, args.vocab
local positions, types, seq, eps, classes = args.positions, args.types, args.seq, args.eps, args.classes
local dropout, attention_dropout = args.dropout, args.attention_dropout
local p = parallel.open(args)

-- ------------------------------------------------------------------------------------- the model

local function linear(inputs, outputs)
  return nn.Linear(inputs, outputs, {init = nn.init.normal(0, 0.02)})
end
local function embedding(rows) return nn.Embedding(rows, dim, {init = nn.init.normal(0, 0.02)}) end

local Embeddings = nn.module("Embeddings", function(self)
  self.word_embeddings, self.position_embeddings = embedding(vocab), embedding(positions)
  self.token_type_embeddings = embedding(types)
  self.LayerNorm, self.dropout = nn.LayerNorm(dim, {eps = eps}), nn.Dropout(dropout)
  function self:forward(ids, kinds)
    local x = attention.padded(self.word_embeddings(ids), ids, args.pad) + self.token_type_embeddings(kinds)
    return self.dropout(self.LayerNorm(x + self.position_embeddings(F.arange(seq))))
  end
end)

local SelfAttention = nn.module("SelfAttention", function(self)
  self.query, self.key, self.value = linear(dim, dim), linear(dim, dim), linear(dim, dim)
  function self:forward(x, mask)
    local function heads(y) return attention.split(y, dim // n_heads) end
    return attention.join(F.scaled_dot_product_attention(heads(self.query(x)), heads(self.key(x)),
      heads(self.value(x)), {attn_mask = mask, dropout_p = attention_dropout}))
  end
end)

-- A product, and a norm of its sum with what the layer was given.
local Output = nn.module("Output", function(self, inputs)
  self.dense, self.dropout = linear(inputs, dim), nn.Dropout(dropout)
  self.LayerNorm = nn.LayerNorm(dim, {eps = eps})
  function self:forward(x, given) return self.LayerNorm(self.dropout(self.dense(x)) + given) end
end)

local Attention = nn.module("Attention", function(self)
  self.self, self.output = SelfAttention(), Output(dim)
  function self:forward(x, mask) return self.output(self.self(x, mask), x) end
end)

local function dense(name, inputs, outputs, f)
  return nn.module(name, function(self)
    self.dense = linear(inputs, outputs)
    function self:forward(x) return f(self.dense(x)) end
  end)
end
local Intermediate = dense("Intermediate", dim, hidden, F.gelu)
local Pooler = dense("Pooler", dim, dim, F.tanh)

local Layer = nn.module("Layer", function(self)
  self.attention, self.intermediate, self.output = Attention(), Intermediate(), Output(hidden)
  function self:forward(x, mask)
    x = self.attention(x, mask)
    return self.output(self.intermediate(x), x)
  end
end)

-- From the last layer to logits: of each token, with the embedding's weight; or of each sequence.
local Transform = nn.module("Transform", function(self)
  self.dense, self.LayerNorm = linear(dim, dim), nn.LayerNorm(dim, {eps = eps})
  function self:forward(x) return self.LayerNorm(F.gelu(self.dense(x))) end
end)
local Predictions = nn.module("Predictions", function(self)
  self.transform, self.bias = Transform(), nn.Parameter(zeros{vocab})
  function self:forward(x, weight) return F.linear(self.transform(x), weight, self.bias) end
end)

local Bert = nn.module("Bert", function(self)
  self.embeddings, self.layer = Embeddings(), attention.layers(n_layers, Layer)
  self.pooler, self.classifier = classes and Pooler(), classes and linear(dim, classes)
  self.predictions, self.dropout = not classes and Predictions(), nn.Dropout(dropout)
  function self:forward(ids, kinds, given)
    local x, mask = self.embeddings(ids, kinds), given:ne(0):unsqueeze(1):unsqueeze(1)
    for _, layer in ipairs(self.layer) do x = layer(x, mask) end
    if classes then return self.classifier(self.dropout(self.pooler(x:select(1, 0)))) end
    return self.predictions(x, self.embeddings.word_embeddings.weight)
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local model = parallelize(Bert(), p.mesh.tp, {
  ["embeddings.word_embeddings"] = Rowwise(),
  ["layer.*"] = {
    ["attention.self.*"] = Colwise(), ["attention.output.dense"] = Rowwise(),
    ["intermediate.dense"] = Colwise(), ["output.dense"] = Rowwise(),
  },
})
p.shard(model, nil, model.layer)

local names = {["embeddings.**"] = "bert.embeddings.**", ["layer.**"] = "bert.encoder.layer.**"}
if classes then names["pooler.**"] = "bert.pooler.**" else names["predictions.**"] = "cls.predictions.**" end
return train(training.options(args, p, {
  model = model,
  batch = p.distribute{
    input_ids = randint(0, vocab){p.batch, seq}, token_type_ids = randint(0, types){p.batch, seq},
    attention_mask = randint(0, 2){p.batch, seq},
    labels = classes and randint(0, classes){p.batch} or randint(-100, vocab){p.batch, seq},
  },
  forward = function(model, b) return model(b.input_ids, b.token_type_ids, b.attention_mask) end,
  loss = function(logits, b)
    if classes then return F.cross_entropy(logits, b.labels) end
    return F.cross_entropy(logits, b.labels, {dim = -1})
  end,
  names = names,
}))
