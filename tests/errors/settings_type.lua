-- args: -D tp=two
local args = settings{{"tp", 2, "ranks"}}
infer{model = nn.Linear(10, args.tp), batch = {input = randn{20, 10}}}
