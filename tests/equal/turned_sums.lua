-- A square is added to itself turned, which lies in the same bytes: the sum may not take these, for its
-- kernel reads each of them at two elements.
-- mesh: a=2
-- mesh: a=2 b=3
-- mesh: a=3
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }

local Model = nn.module("Model", function(self)
  self.first = nn.Linear(4, 4)
  function self:forward(x)
    local square = F.matmul(x, x:transpose(-1, -2))
    x = self.first(square:redistribute(mesh, {Shard(1, 1), Shard(1, 0)}))
    return x:redistribute(mesh.a, Replicate()):transpose(1, 0) + x
  end
end)

local model = parallelize(Model(), mesh.a, {first = PrepareModuleOutput{desired_output_layouts = Shard(-1)}})
replicate(model, mesh{"a", "b"}, {zero = 1})
return train{
  model = model, batch = {input = randn{4, 8}},
  loss = function(output) return (output^2):mean() end,
  optimizer = SGD{lr = 0.005}, steps = 3,
}
