-- args: -D tp=two
local mesh = device_mesh{ {"tp", args.tp} }
