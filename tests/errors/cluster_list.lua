-- The file of a cluster has a list.
device_mesh{ {"dp", 2}, cluster = "json_list.json" }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
