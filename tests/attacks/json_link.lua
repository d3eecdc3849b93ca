-- A link beside the plan that leads elsewhere: attacks.sh has laid it there.
local got = read_json("link.json")
error("ESCAPED: " .. type(got))
