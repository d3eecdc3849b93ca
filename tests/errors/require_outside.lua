require "required.outside"
