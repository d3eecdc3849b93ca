-- args: -D short=A.json -D whole=B.json
-- Whether two config.json files are the same model to lib/families.lua. An error says where they differ.
local families = require "lib.families"
local args = settings{
  {"short", nil, "a file without what is usual", type = "text"}, {"whole", nil, "one that says all of it", type = "text"},
}

local function shown(v)
  if type(v) == "number" then return string.format("%.17g", v) end
  return tostring(v)
end

local layers
local function compare(where, a, b)
  if type(a) == "function" and type(b) == "function" then
    for i = 0, layers - 1 do compare(where .. "(" .. i .. ")", a(i), b(i)) end
  elseif type(a) == "table" and type(b) == "table" then
    for key in pairs(a) do compare(where .. "." .. key, a[key], b[key]) end
    for key in pairs(b) do compare(where .. "." .. key, a[key], b[key]) end
  elseif a ~= b then
    error(where .. " is " .. shown(a) .. ", not " .. shown(b))
  end
end

local short, whole = families.complete(families.read(args.short)), families.complete(families.read(args.whole))
layers = whole.n_layers
compare(whole.model_type, short, whole)
local Model = nn.module("Model", function(self)
  self.scale = nn.Parameter(ones{1})
  function self:forward(x) return x * self.scale end
end)
return infer{model = Model(), batch = {input = ones{1}}, outputs = function(model, batch) return {output = model(batch.input)} end}
