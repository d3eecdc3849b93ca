-- args: -D configs=FOLDER -D names=a,b
-- The rotary tables of config.json files, as plans read them.
local hugging_face = require "lib.hugging_face"
local args = settings{
  {"configs", nil, "a folder of NAME.json", type = "text"}, {"names", nil, "the names, with commas between", type = "text"},
}
local names, tables = {}, {}
for name in string.gmatch(args.names, "[^,]+") do
  local config = hugging_face.config(args.configs .. "/" .. name .. ".json", {"llama", "phi3"})
  local theta, scaling, part = hugging_face.rope(config.at)
  local length = math.tointeger(tonumber(string.match(name, "_at_(%d+)$") or 4)) -- of the sequences
  local size = config.at.hidden_size // config.at.num_attention_heads
  names[#names + 1] = name
  tables[#tables + 1] = {length, math.floor(size * (part or 1)), theta, scaling}
end
local Model = nn.module("Model", function(self)
  self.scale = nn.Parameter(ones{1})
  function self:forward(x) return x * self.scale end
end)
return infer{
  model = Model(), batch = {input = ones{1}},
  outputs = function(model, batch)
    local one, found = model(batch.input), {}
    for i, name in ipairs(names) do
      local cos, sin = F.rotary_tables(table.unpack(tables[i], 1, 4))
      found[name .. "_cos"], found[name .. "_sin"] = cos * one, sin * one
    end
    return found
  end,
}
