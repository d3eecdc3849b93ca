-- Any PyTorch model that torch.export.save has saved, trained on a mesh.
--
--   tpgen plans/torch_export.lua -o out/ -D model=llama.pt2 -D tp=2 -D loss=cross_entropy
--   out/run.sh --weights llama.pt2 --data batches.safetensors --steps 100
--
-- tpgen plans/torch_export.lua --help lists the settings.
--
-- The data has the names of the exported inputs, or `input` where there is one, and `target`; with `_input` behind a name
-- that the model's own parameter or buffer has, or the target.

local shared, training = require "lib.settings", require "lib.training"
local args = settings({{
  {"model", nil, "the archive that torch.export.save wrote", type = "text"},
  {"batch", nil, "the first size of its first input, if it was exported as a symbol", type = "size"},
  {"loss", "cross_entropy", "cross_entropy: of logits [..., classes] and target [...]; mse; output: the model's first "
    .. "output is the loss; none: one forward step, whose outputs are written",
    choices = {"cross_entropy", "mse", "output", "none"}},
  {"dp", function(a) return a.dp_shard end, "ranks that share the batch; by default dp_shard", type = "size", search = "data"},
  {"dp_shard", 1, "ranks of dp over which parameters, gradients and the optimizer's state are cut", search = "shards"},
  {"tp", 1, "ranks that share each layer, by auto()", search = "tensor"},
  {"auto", false, "tpgen finds the mesh on --cluster, and all that is cut over it; tp and dp_shard above 1 stay"},
  shared.memory,
}, shared.adapters("q_proj|v_proj|query|value|c_attn"), shared.training},
  {lr = 1e-3, beta2 = 0.999, weight_decay = 0.01, steps = 10})
local model, about = torch_export(args.model or error("say which archive: -D model=FILE"),
  args.batch and {batch = args.batch})
training.adapt(args, model)
local tp, dp, dp_shard, finds = args.tp, args.dp, args.dp_shard, args.auto
if finds and (dp > dp_shard or args.loss == "none") then error("auto=true is for training, and finds dp itself") end
if dp % dp_shard ~= 0 then error("dp = " .. dp .. " ranks are not in groups of dp_shard = " .. dp_shard) end
local hybrid = dp_shard > 1 and dp_shard < dp
local mesh = not finds and (hybrid and device_mesh{{"dp_replicate", dp // dp_shard}, {"dp_shard", dp_shard}, {"tp", tp}}
  or device_mesh{{"dp", dp}, {"tp", tp}})
local data_parallel = mesh and (hybrid and mesh{"dp_replicate", "dp_shard"} or mesh.dp)

-- --------------------------------------------------------------------------------- tensor parallelism

-- tpgen finds the placements itself, and prints them.
if mesh and tp > 1 then parallelize(model, mesh.tp, auto()) end

-- A unit for each layer of a list, and one for all else.
if mesh and dp_shard > 1 then
  local function at(path)
    local m = model
    for part in string.gmatch(path, "[^.]+") do
      local number = math.tointeger(part)
      m = number and m[number + 1] or m[part]
    end
    return m
  end
  local is_list = {}
  for _, path in ipairs(about.lists) do is_list[path] = true end
  for i = #about.lists, 1, -1 do -- of a list within another's member first
    local path = about.lists[i]
    for k, layer in ipairs(at(path)) do
      if not is_list[path .. "." .. k - 1] then fully_shard(layer, data_parallel) end
    end
  end
  fully_shard(model, data_parallel)
end

-- ------------------------------------------------------------------------------------------- the data

-- Whole numbers that are no indices, as a mask, may be any.
local function drawn(shape, dtype, below)
  local sizes = table.move(shape, 1, #shape, 1, {})
  if dtype == "float32" then return randn(sizes) end
  if below then return randint(below)(sizes) end
  sizes.dtype = dtype
  return ones(sizes)
end

local logits, loss = about.outputs[1], args.loss
local taken = {}
for _, name in ipairs(about.parameters) do taken[name] = true end
local function free(name)
  while taken[name] do name = name .. "_input" end
  taken[name] = true
  return name
end

local target = (loss == "cross_entropy" or loss == "mse") and free("target")
local batch, names = {}, {}
for i, input in ipairs(about.inputs) do
  names[i] = free(#about.inputs == 1 and "input" or input.name)
  batch[names[i]] = drawn(input.shape, input.dtype, input.below)
end
if not logits then error(args.model .. " has no output") end
if loss == "cross_entropy" then
  local shape = table.move(logits.shape, 1, #logits.shape - 1, 1, {})
  batch[target] = drawn(shape, "int64", logits.shape[#logits.shape])
elseif loss == "mse" then
  batch[target] = drawn(logits.shape, "float32")
end
if mesh then distribute(batch, data_parallel, hybrid and {Shard(0), Shard(0)} or Shard(0)) end

local function forward(m, b)
  local given = {}
  for i, name in ipairs(names) do given[i] = b[name] end
  return m(table.unpack(given))
end
local function first_output(m, b) return (forward(m, b)) end

if loss == "none" then
  return infer{
    model = model, batch = batch, seed = args.seed,
    outputs = function(m, b)
      local results, outputs = {forward(m, b)}, {}
      for i, y in ipairs(results) do outputs[#results == 1 and "output" or about.outputs[i].name] = y end
      return outputs
    end,
  }
end

return train(training.options(args, {}, {
  model = model, batch = batch, forward = first_output,
  loss = function(y, b)
    if loss == "output" then return y end
    if loss == "mse" then return F.mse_loss(y, b[target]) end
    return F.cross_entropy(y:flatten(0, -2), b[target]:flatten())
  end,
  parallel = finds and auto{tp = tp > 1 and tp or nil, dp_shard = dp_shard > 1 and dp_shard or nil} or nil,
}))
