-- A model of tokens for jobs with faults: -D shape=tp (tensor parallel), pp (two stages) or ep (experts on two ranks),
-- -D shuffle=SEED (of a data set that is cut in windows).
local shape = args.shape or "tp"
local mesh = device_mesh{ {shape, 2} }

local Block = nn.module("Block", function(self)
  self.up = nn.Linear(24, 48)
  self.down = nn.Linear(48, 24, {bias = false})
  self.dropout = nn.Dropout(0.1)
  if shape == "ep" then self.moe = nn.MoE(24, {experts = 4, top_k = 2, hidden = 16}) end
  function self:forward(x)
    x = x + self.dropout(self.down(self.up(x):relu()))
    if shape == "ep" then x = x + self.moe(x) end
    return x
  end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(256, 24)
  self.blocks = nn.ModuleList{Block(), Block(), Block(), Block()}
  self.output = nn.Linear(24, 256)
  function self:forward(input)
    local x = self.embedding(input)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.output(x)
  end
end)

local model = Model()
local batch = {input = tokens(256){4, 6}, target = tokens(256, 1){4, 6}}
if shape == "tp" then
  parallelize(model, mesh.tp, {["blocks.*.up"] = Colwise(), ["blocks.*.down"] = Rowwise()})
elseif shape == "ep" then
  parallelize(model, mesh.ep, {["blocks.*.moe.experts"] = ExpertParallel()})
  batch = distribute(batch, mesh.ep, Shard(0))
else
  pipeline(model, mesh.pp, {schedule = "1f1b", microbatches = 4})
end

return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 0.01}, clip = 1, schedule = WarmupCosine{warmup = 4, steps = 2000, least = 0.1},
  shuffle = args.shuffle, steps = 40, seed = 5,
}
