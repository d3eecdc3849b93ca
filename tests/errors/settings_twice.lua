local args = settings{{"width", 2, "columns"}, {title = "more", {"width", 1, "again"}}}
infer{model = nn.Linear(10, args.width), batch = {input = randn{20, 10}}}
