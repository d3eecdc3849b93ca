require "required.circle"
