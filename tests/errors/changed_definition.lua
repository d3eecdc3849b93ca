-- args: -D tp=4
args.tp = 2
