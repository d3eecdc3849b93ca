-- args: -D tp=2
-- No style speaks of tp: its ranks do all the same.
local mesh = device_mesh{ {"dp", 2}, {"tp", args.tp} }
infer{model = nn.Linear(4, 4), batch = distribute({input = randn{4, 4}}, mesh.dp, Shard(0))}
