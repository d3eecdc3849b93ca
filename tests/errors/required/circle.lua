return require "required.circle"
