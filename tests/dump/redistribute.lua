-- What a plan asks of where tensors lie, in which order and in which type; and what becomes of it on
-- the way back: the gradient in its own type, back where the value lay, pending sums made whole.
local mesh = device_mesh{ {"dp", 2, bandwidth = 25e9, latency = 10e-6}, {"one", 1}, {"tp", 4} }

local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter{16, 8, init = nn.init.normal(0, 0.02)}

  function self:forward(x)
    local y = (x + self.weight):redistribute(mesh, {Shard(0), Shard(1), Shard(-1)})
    y = y:redistribute(mesh, {false, Replicate(), Shard(0)}, {forward_dtype = "bfloat16"})
    y = y:redistribute(mesh.tp, Replicate(), {backward_dtype = "float32"})
    y = y:redistribute(mesh, {Partial(), false, Partial()}, {forward_dtype = "float32"})
    y = y:redistribute(mesh, {Shard(0, 1), Replicate(), Shard(0, 0)})
    return y:redistribute(mesh, {Shard(0, 1), Replicate(), Shard(0)}, {backward_dtype = "bfloat16"})
  end
end)

return train{
  model = parallelize(Model(), mesh.dp, PrepareModuleInput{desired_input_layouts = Shard(0, 1)}),
  batch = { input = distribute(randn{16, 8}, mesh, {false, Shard(1), Shard(0, 0)}) },
  loss = function(output) return output:sum() end,
  optimizer = SGD{},
  steps = 1,
  planner = "greedy",
}
