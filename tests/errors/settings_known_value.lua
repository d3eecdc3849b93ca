local args = settings({{"width", 2, "columns"}}, {width = 1.5})
infer{model = nn.Linear(10, args.width), batch = {input = randn{20, 10}}}
