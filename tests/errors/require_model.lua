local A = require("required.model").new()
return train{model = A(), batch = {input = randn{4, 4}}, loss = function(o) return o:sum() end, optimizer = SGD{}, steps = 1}
