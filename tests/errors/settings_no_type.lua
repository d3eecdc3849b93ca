local args = settings{{"width", nil, "columns"}}
infer{model = nn.Linear(10, args.width), batch = {input = randn{20, 10}}}
