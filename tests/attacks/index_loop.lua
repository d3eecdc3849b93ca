local t = {}
setmetatable(t, {__index = t})
t = setmetatable({}, {__index = function(self, k) return self[k] end})
return t.x
