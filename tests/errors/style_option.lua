local style = Colwise{output_layout = Shard(0)}
