error(setmetatable({}, {__tostring = function() error(setmetatable({}, {__tostring = error})) end}))
