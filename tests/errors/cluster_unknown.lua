device_mesh{ {"dp", 2}, cluster = "dgx-h101" }
return infer{ model = nn.Identity(), batch = { input = randn{8, 4} } }
