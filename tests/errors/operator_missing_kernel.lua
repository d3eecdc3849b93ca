operator{name = "twice", rule = "...->...", kernel = "kernels/no_such.c"}
infer{model = nn.Identity(), batch = {input = randn{2}}}
