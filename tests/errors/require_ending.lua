require "required/fails.lua"
