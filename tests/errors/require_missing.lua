require "required.nothing"
