-- One layer of experts, forward and backward, all its inputs with gradients: -D experts=8 -D top_k=2 -D dim=512
-- -D hidden=1792 -D tokens=4096. Its loss and its step are next to nothing beside it.
local dim, tokens = args.dim or 512, args.tokens or 4096

local Layer = nn.module("Layer", function(self)
  self.x = nn.Parameter(randn{1, tokens, dim})
  self.mlp = nn.MoE(dim, {experts = args.experts or 8, top_k = args.top_k or 2, hidden = args.hidden or 1792,
    init = nn.init.normal(0, 0.02)})
  function self:forward() return (self.mlp(self.x)) end
end)

return train{
  model = Layer(),
  batch = {weight = randn{1, tokens, dim}, input = randint(0, 2){1, 1}},
  forward = function(model) return model() end,
  loss = function(y, batch) return (y * batch.weight):mean() end,
  optimizer = SGD{lr = 0},
  steps = 3,
}
