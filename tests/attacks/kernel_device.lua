-- args: --target cuda
-- No file of the plan's: an endless one would never be read to its end.
local o = operator{name = "zero", rule = "...->...", kernel_cuda = "zero.cu"}
return infer{model = nn.Identity(), batch = {input = randn{1}}}
