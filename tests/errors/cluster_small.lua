-- More ranks than the cluster has devices.
device_mesh{ {"dp", 3}, {"tp", 8}, cluster = "dgx-h100:2" }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
