-- args: -D file=tests/errors/json_deep.json
read_json(args.file)
