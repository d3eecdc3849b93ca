local m = require "required.fails"
m.fail("model")
