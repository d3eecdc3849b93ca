local args = settings{{"width", 2, "columns"}}
infer{model = nn.Linear(10, args.widht), batch = {input = randn{20, 10}}}
