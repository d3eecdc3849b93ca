require "required.forever"
