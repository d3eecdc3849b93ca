-- args: -D tensor_ranks=4
local args = settings{{"tp", 2, "ranks", was = "tensor_ranks"}, {"lr", 0.1, "the rate"}}
infer{model = nn.Linear(10, 5), batch = {input = randn{20, 10}}}
