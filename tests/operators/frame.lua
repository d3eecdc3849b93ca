-- What stands ahead of each family of cases, FAMILY.lua, to make a plan of it. Its functions:
--
--   input(name, sizes)          a tensor of the data file, with a gradient; `at`: the dimensions that
--                               may be cut, all unless given
--   given(name, description)    one without: truths, indices
--   case(name, sizes, f)        f(t), of these sizes, is an output; t has the inputs by name
--   part(name, module)          the module, which becomes part of the model
--
-- One step of SGD with a rate of 1 brings out values and gradients alike: an input is what the file
-- says minus a parameter `gradient_NAME` that begins as 0, and the loss is the sum of all outputs,
-- each times a weight of the file, minus the sum of each output times a parameter `value_NAME` that
-- begins as 0, through which no gradient flows to the output. After the step they are what they are
-- called. With -D mode=infer the program is one that writes the outputs.
--
-- -D place=...: how all inputs lie over tp as the cases take them. A number: cut along that dimension,
-- counted round; "mixed": each along another one; "pending": every other one as a pending sum.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local place = args.place or 0

local inputs, cases, parts, batch = {}, {}, {}, {}

-- The placement over tp of input i, as the cases take it.
local function placed(i, x)
  if place == "pending" and i % 2 == 1 and x.floating then return Partial() end
  local dims = x.at
  return Shard(dims[(math.type(place) and place or i) % #dims + 1])
end

local function all(sizes)
  local dims = {}
  for d = 1, #sizes do dims[d] = d - 1 end
  return dims
end

local function input(name, sizes, at)
  inputs[#inputs + 1] = {name = name, sizes = sizes, at = at or all(sizes), floating = true}
  batch[name] = distribute(randn(sizes), mesh.dp, Shard(0))
end

local function given(name, sizes, description)
  inputs[#inputs + 1] = {name = name, sizes = sizes, at = all(sizes)}
  batch[name] = distribute(description(sizes), mesh.tp, Shard(#sizes - 1))
end

local function case(name, sizes, f)
  cases[#cases + 1] = {name = name, sizes = sizes, f = f}
  batch["weight_" .. name] = randn(sizes)
  if #sizes > 0 then distribute(batch["weight_" .. name], mesh.tp, Shard(#cases % #sizes)) end
end

local function part(name, module)
  parts[name] = module
  return module
end

local Model = nn.module("Model", function(self)
  for name, module in pairs(parts) do self[name] = module end
  self.placed = nn.ModuleList()
  for i, x in ipairs(inputs) do
    self.placed[i] = nn.Identity()
    if x.floating then self["gradient_" .. x.name] = nn.Parameter(zeros(x.sizes)) end
  end
  for _, c in ipairs(cases) do self["value_" .. c.name] = nn.Parameter(zeros(c.sizes)) end

  -- The outputs, in the order of the cases.
  function self:forward(batch)
    local t, outputs = {}, {}
    for i, x in ipairs(inputs) do
      local whole = batch[x.name]
      if x.floating then whole = whole - self["gradient_" .. x.name] end
      t[x.name] = self.placed[i](whole)
    end
    for i, c in ipairs(cases) do
      outputs[i] = c.f(t)
      assert(outputs[i]:dim() == #c.sizes
        and table.concat(outputs[i]:size(), " ") == table.concat(c.sizes, " "),
        c.name .. " is " .. tostring(outputs[i]))
    end
    return outputs
  end
end)

local function loss(outputs, model, batch)
  local sum = 0
  for i, c in ipairs(cases) do
    local y = outputs[i]:to("float32")
    sum = sum + (y * batch["weight_" .. c.name]):sum() - (y:detach() * model["value_" .. c.name]):sum()
  end
  return sum
end

-- The program, when all is said.
local function program()
  local model = Model()
  for i, x in ipairs(inputs) do
    local style = PrepareModuleOutput{desired_output_layouts = placed(i, x)}
    parallelize(model.placed[i], mesh.tp, style)
  end
  if args.mode ~= "infer" then
    return train{
      model = model, batch = batch,
      forward = function(model, batch) return loss(model(batch), model, batch) end,
      loss = function(sum) return sum end,
      optimizer = SGD{lr = 1}, steps = 1, seed = 1,
    }
  end
  return infer{
    model = model, batch = batch,
    outputs = function(model, batch)
      local named = {}
      for i, y in ipairs(model(batch)) do named["value_" .. cases[i].name] = y:to("float32") end
      return named
    end,
    seed = 1,
  }
end

