-- A kernel of the plan's own that is not written for it.
local scaled = operator{ name = "scaled", rule = "...->...", kernel = "floats.c" }
infer{model = nn.Identity(), batch = {input = randn{20, 10, dtype = "bfloat16"}},
  outputs = function(_, batch) return {output = scaled(batch.input * 0.5)} end}
