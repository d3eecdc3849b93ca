-- args: -D kind=wide
local args = settings{{"kind", "deep", "the shape", type = "size", choices = {"deep", "flat"}}}
infer{model = nn.Linear(10, 5), batch = {input = randn{20, 10}}}
