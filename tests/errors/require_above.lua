require "../dump/sandbox"
