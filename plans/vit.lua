-- ViT, the classification of images, from a Hugging Face folder or from the start.
--
--   tpgen plans/vit.lua -o out/ -D config=vit-base-patch16-224/config.json -D tp=2 -D classes=10
--   out/run.sh --weights vit-base-patch16-224 --data images.safetensors
--
-- The data has pixel_values [batch, channels, size, size] and labels [batch]. tpgen
-- plans/vit.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training, attention = require "lib.parallel", require "lib.training", require "lib.attention"

local function from_config(path)
  local config = hugging_face.config(path, {"vit"})
  local need, at = config.need, config.at
  config.only("hidden_act", "gelu")
  return {
    dim = need("hidden_size"), n_layers = need("num_hidden_layers"),
    n_heads = need("num_attention_heads"), hidden = need("intermediate_size"),
    image = need("image_size"), patch = need("patch_size"), channels = need("num_channels"),
    eps = at.layer_norm_eps, dropout = at.hidden_dropout_prob, qkv_bias = at.qkv_bias,
    attention_dropout = at.attention_probs_dropout_prob, classes = hugging_face.count(at.id2label),
  }
end

local known = args.config and from_config(args.config)
  or {dim = 64, n_layers = 2, n_heads = 4, hidden = 128, image = 16, patch = 4, batch = 4, classes = 10}
local args = settings({shared.files,
  shared.model{
    "dim", "n_layers", "n_heads", "hidden",
    {"image", nil, "the height and the width of an image", type = "size"},
    {"patch", nil, "the height and the width of a patch", type = "size"},
    {"channels", 3, "channels of an image"},
    {"classes", 2, "classes of the images"},
    {"eps", 1e-12}, "dropout", "attention_dropout", "qkv_bias",
  },
  shared.mesh, shared.training,
}, known)
local dim, n_layers, n_heads, hidden = args.dim, args.n_layers, args.n_heads, args.hidden
local image, patch, channels, classes, eps = args.image, args.patch, args.channels, args.classes, args.eps
local dropout, attention_dropout, qkv_bias = args.dropout, args.attention_dropout, args.qkv_bias
local patches = (image // patch) ^ 2 // 1 | 0
local p = parallel.open(args)

-- ------------------------------------------------------------------------------------- the model

local INIT = nn.init.normal(0, 0.02)
local function linear(inputs, outputs, bias)
  return nn.Linear(inputs, outputs, {init = INIT, bias = bias ~= false})
end

local Embeddings = nn.module("Embeddings", function(self)
  self.cls_token = nn.Parameter{1, 1, dim, init = INIT}
  self.position_embeddings = nn.Parameter{1, patches + 1, dim, init = INIT}
  self.projection = nn.Conv2d(channels, dim, {kernel_size = patch, stride = patch})
  self.dropout = nn.Dropout(dropout)
  function self:forward(pixels)
    local x = self.projection(pixels):flatten(2):transpose(1, 2)
    local first = self.cls_token:expand(x:size(0), -1, -1)
    return self.dropout(F.cat({first, x}, 1) + self.position_embeddings)
  end
end)

local Attention = nn.module("Attention", function(self)
  self.q_proj, self.k_proj = linear(dim, dim, qkv_bias), linear(dim, dim, qkv_bias)
  self.v_proj, self.o_proj = linear(dim, dim, qkv_bias), linear(dim, dim)
  function self:forward(x)
    local function heads(y) return attention.split(y, dim // n_heads) end
    return self.o_proj(attention.join(F.scaled_dot_product_attention(heads(self.q_proj(x)),
      heads(self.k_proj(x)), heads(self.v_proj(x)), {dropout_p = attention_dropout})))
  end
end)

local MLP = nn.module("MLP", function(self)
  self.fc1, self.fc2 = linear(dim, hidden), linear(hidden, dim)
  function self:forward(x) return self.fc2(F.gelu(self.fc1(x))) end
end)

local Layer = nn.module("Layer", function(self)
  self.layernorm_before = nn.LayerNorm(dim, {eps = eps})
  self.layernorm_after = nn.LayerNorm(dim, {eps = eps})
  self.attention, self.mlp, self.dropout = Attention(), MLP(), nn.Dropout(dropout)
  function self:forward(x)
    x = x + self.dropout(self.attention(self.layernorm_before(x)))
    return x + self.dropout(self.mlp(self.layernorm_after(x)))
  end
end)

local ViT = nn.module("ViT", function(self)
  self.embeddings, self.layers = Embeddings(), attention.layers(n_layers, Layer)
  self.layernorm, self.classifier = nn.LayerNorm(dim, {eps = eps}), linear(dim, classes)
  function self:forward(pixels)
    local x = self.embeddings(pixels)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.classifier(self.layernorm(x):select(1, 0))
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local model = parallelize(ViT(), p.mesh.tp, {
  ["layers.*"] = {
    ["attention.[qkv]_proj"] = Colwise(), ["attention.o_proj"] = Rowwise(),
    ["mlp.fc1"] = Colwise(), ["mlp.fc2"] = Rowwise(),
  },
})
p.shard(model, nil, model.layers)

local names = {
  ["embeddings.cls_token"] = "vit.embeddings.cls_token",
  ["embeddings.position_embeddings"] = "vit.embeddings.position_embeddings",
  ["embeddings.projection.*"] = "vit.embeddings.patch_embeddings.projection.*",
  ["layernorm.*"] = "vit.layernorm.*",
}
for ours, theirs in pairs{
  ["attention.q_proj.*"] = "attention.attention.query.*",
  ["attention.k_proj.*"] = "attention.attention.key.*",
  ["attention.v_proj.*"] = "attention.attention.value.*",
  ["attention.o_proj.*"] = "attention.output.dense.*", ["mlp.fc1.*"] = "intermediate.dense.*",
  ["mlp.fc2.*"] = "output.dense.*", ["layernorm_before.*"] = "layernorm_before.*",
  ["layernorm_after.*"] = "layernorm_after.*",
} do names["layers.*." .. ours] = "vit.encoder.layer.*." .. theirs end

return train(training.options(args, p, {
  model = model,
  batch = p.distribute{
    pixel_values = randn{p.batch, channels, image, image}, labels = randint(0, classes){p.batch},
  },
  forward = function(model, batch) return model(batch.pixel_values) end,
  loss = function(logits, batch) return F.cross_entropy(logits, batch.labels) end,
  names = names,
}))
