-- bfloat16: what is kept, gathered and computed in it, and comes out in it or as float32. Sums over
-- several ranks are of floats.
-- mesh: tp=2
-- mesh: tp=3
-- sanitized: tp=3
-- cuda: tp=3
-- mesh: dp=2 tp=2
-- mesh: dp=3 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local everywhere, moved = {Replicate(), Replicate()}, {forward_dtype = "bfloat16"}

local Model = nn.module("Model", function(self)
  self.w = nn.Parameter{7, 6, init = nn.init.uniform(-2, 2)}
  function self:forward(x, y, z)
    local w = self.w:redistribute(mesh, {Shard(1), Shard(0)}):redistribute(mesh, everywhere, moved)
    local h = (x * 1.5 + 0.1):to("bfloat16")
    local part = h:redistribute(mesh, {Shard(0), Shard(1)})
    local turned = part:redistribute(mesh, {Shard(1), Shard(0)})
    local whole = (y - turned):redistribute(mesh, everywhere, {forward_dtype = "float32"})
    return {
      weights = w, cast = h, part = part * y, turned = turned:transpose(0, 1),
      whole = whole, most = h:amax(1), least = turned:amin(1):to("float32"),
      heights = (w + y):sum(0), mean = (h * h):mean(1, true) + 1,
      columns = h:to("float32"):sum(0), product = x:matmul(w:to("float32"):transpose(0, 1)),
      mixed = h / y:to("float32"), chosen = F.where(h:lt(y), h, -y * 0.3),
      few = F.cat({h:narrow(1, 1, 3), y:narrow(1, 0, 2)}, 1), odd = F.pad(turned, {2, 1}),
      numbers = (h * 10):to("int32"), truths = y:to("bool"), like = F.softmax(h:to("float32"), 1),
      picked = y:index_select(0, F.arange(3):to("int32")), tenth = y * 0 + 0.1,
      highest = (-z):amax(0), lowest = z:amin(0):to("float32"), both = (z * 2):sum(0),
    }
  end
end)

return infer{
  model = Model(),
  batch = {
    x = distribute(randn{7, 6}, mesh.dp, Shard(0)),
    y = distribute(randn{7, 6, dtype = "bfloat16"}, mesh.tp, Shard(1)),
    -- Of three ranks one has nothing.
    z = distribute(randn{2, 300, dtype = "bfloat16"}, mesh.tp, Shard(0)),
  },
  outputs = function(model, batch) return model(batch.x, batch.y, batch.z) end,
  seed = 23,
}
