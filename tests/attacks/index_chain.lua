-- The model's own tables are followed by tpgen: a chain without end.
local t = setmetatable({}, {__index = function(self) return self end, __len = function() return 1 << 62 end,
  __pairs = function() return function() return 1, 1 end end, __call = function(self) return self end})
return train(t)
