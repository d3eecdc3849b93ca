require "required/syntax"
