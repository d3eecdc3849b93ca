-- args: -D tp=0
local mesh = device_mesh{ {"tp", args.tp} }
