-- The file of a cluster has a name twice.
device_mesh{ {"dp", 2}, cluster = "json_twice.json" }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
