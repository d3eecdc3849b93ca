require "required..fails"
