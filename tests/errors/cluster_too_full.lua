-- The memory of the cluster's device counts where the plan states none.
device_mesh{ {"dp", 1}, cluster = "dgx-a100" }
return infer{ model = nn.Linear(200000, 200000), batch = { input = randn{8, 200000} } }
