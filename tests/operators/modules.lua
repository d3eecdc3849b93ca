-- The modules of nn with weights of their own, in a small model of words and images, under styles
-- that leave shards and pending sums to finish. After the step the weights are less their gradients.
local WIDTH, HEADS, GROUPS, SIZE, LENGTH, WORDS = 8, 4, 2, 4, 6, 11
local plain = {bias = false}

local Attention = nn.module("Attention", function(self)
  self.wq = nn.Linear(WIDTH, HEADS * SIZE)
  self.wk = nn.Linear(WIDTH, GROUPS * SIZE, plain)
  self.wv = nn.Linear(WIDTH, GROUPS * SIZE, plain)
  self.wo = nn.Linear(HEADS * SIZE, WIDTH)
  local function heads(x, n) return x:view(4, LENGTH, n, SIZE):transpose(1, 2) end
  function self:forward(x)
    local cos, sin = F.rotary_tables(LENGTH, SIZE, 100)
    local q = heads(self.wq(x), HEADS):rotary(cos, sin)
    local k = heads(self.wk(x), GROUPS):rotary(cos, sin)
    local y = F.scaled_dot_product_attention(q, k, heads(self.wv(x), GROUPS), {causal = true})
    return self.wo(y:transpose(1, 2):flatten(2))
  end
end)

local Block = nn.module("Block", function(self)
  self.norm, self.norm2 = nn.RMSNorm(WIDTH, {eps = 1e-4}), nn.LayerNorm(WIDTH)
  self.attention = Attention()
  self.up, self.gate = nn.Linear(WIDTH, 12), nn.Linear(WIDTH, 12, plain)
  self.act = nn.SiLU()
  self.down = nn.Linear(12, WIDTH)
  function self:forward(x)
    x = x + self.attention(self.norm(x))
    local h = self.norm2(x)
    return x + self.down(self.act(self.up(h)) * self.gate(h))
  end
end)

local Model = nn.module("Model", function(self)
  self.embed = nn.Embedding(WORDS, WIDTH)
  self.image = nn.Sequential(nn.Conv2d(3, 4, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(4, 6, 3, {groups = 2, bias = false}), nn.GELU("tanh"), nn.Flatten(),
    nn.Linear(24, WIDTH), nn.Tanh(), nn.Identity())
  self.scale = nn.Parameter{WIDTH, init = nn.init.constant(1)}
  self.blocks = nn.ModuleList{Block(), Block()}
  self.norm = nn.LayerNorm({LENGTH, WIDTH}, {elementwise_affine = false})
  self.mix = nn.Linear(WIDTH, WIDTH)
  self.sigmoid, self.gelu, self.softmax = nn.Sigmoid(), nn.GELU(), nn.Softmax(1)
  self.head = nn.Linear(WIDTH, WORDS, plain)
  function self:forward(batch)
    local x = self.embed(batch.words) + self.image(batch.image):unsqueeze(1) * self.scale
    for _, block in ipairs(self.blocks) do x = block(x) end
    x = self.norm(x)
    x = x + self.sigmoid(self.mix(x)) + self.gelu(x) + self.softmax(x)
    return self.head(x)
  end
end)

local function blocks(input, output)
  return {
    ["attention.wq"] = Colwise{input_layouts = input}, ["attention.wk"] = Colwise(),
    ["attention.wv"] = Colwise(), ["attention.wo"] = Rowwise{output_layouts = output},
    up = Colwise(), gate = Colwise(), down = Rowwise{output_layouts = output},
  }
end
local function sequence(embedding)
  local styles = blocks(Shard(1), Shard(1))
  styles.norm, styles.norm2 = SequenceParallel(), SequenceParallel()
  return {
    embed = embedding{output_layouts = Shard(1)}, ["blocks.*"] = styles,
    mix = Rowwise{output_layouts = Shard(1)}, head = Colwise{output_layouts = Replicate()},
  }
end
local styles = {
  [0] = {embed = Colwise{output_layouts = Replicate()}, ["blocks.*"] = blocks(), head = Colwise()},
  [1] = sequence(Rowwise),
  [2] = sequence(Colwise),
  mixed = {embed = Rowwise(), ["blocks.*"] = blocks(nil, Partial()), mix = Colwise(), head = Rowwise()},
  pending = {
    ["blocks.*"] = PrepareModuleInput{desired_input_layouts = Shard(2)}, ["blocks.*.attention"] =
      PrepareModuleOutput{desired_output_layouts = Shard(0)},
    ["blocks.0.down"] = Rowwise{output_layouts = Partial()}, ["image.6"] = Rowwise(),
    ["image.3"] = PrepareModuleInput{desired_input_layouts = Shard(1)}, mix = Colwise(),
    head = Rowwise{output_layouts = Partial()},
  },
}
local model = parallelize(Model(), mesh.tp, styles[place])
local data = distribute({words = randint(WORDS){4, LENGTH}, image = randn{4, 3, 8, 8},
  target = randint(WORDS){4, LENGTH}}, mesh.dp, Shard(0))

if args.mode == "infer" then
  return infer{
    model = model, batch = data,
    outputs = function(model, batch)
      local y = model(batch)
      return {
        logits = y, best = (y:amax(-1)), words = y:argmax(-1):to("float32"),
        loss = F.cross_entropy(y, batch.target, {reduction = "none"}),
      }
    end,
  }
end
return train{
  model = model, batch = data, optimizer = SGD{lr = 1}, steps = 1,
  forward = function(model, batch) return model(batch) end,
  loss = function(y, batch) return F.cross_entropy(y, batch.target, {reduction = "sum"}) * 2 end,
}
