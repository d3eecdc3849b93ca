local args = settings{{"width", 2, "columns"}}
args = settings{{"height", 2, "rows"}}
infer{model = nn.Linear(10, args.width), batch = {input = randn{20, 10}}}
