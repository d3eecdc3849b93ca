-- args: -D deep=3
local args = settings{{"width", 2, "columns"}, {"deep", 1, "layers"}}
infer{model = nn.Linear(10, args.width), batch = {input = randn{20, 10}}}
