local batch = distribute({input = randn{4, 6}}, device_mesh{ {"dp", 2} }.dp, Shard(0), Shard(1))
