local weak = setmetatable({}, {__mode = "kv"})
for i = 1, 10000000 do weak[{}] = {} weak[i] = setmetatable({}, {__mode = "k", __index = weak}) end
