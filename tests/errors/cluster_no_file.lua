-- The file of a cluster is not there.
device_mesh{ {"dp", 2}, cluster = "no_such_cluster.json" }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
