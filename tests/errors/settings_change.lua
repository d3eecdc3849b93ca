local args = settings{{"width", 2, "columns"}}
args.width = 3
infer{model = nn.Linear(10, args.width), batch = {input = randn{20, 10}}}
