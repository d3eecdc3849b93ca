read_json("../../README.md")
