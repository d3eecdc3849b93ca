# texts.awk: the comments and the strings of C and Lua, a line for each: "FILE:LINE: text". Lines of one comment, and strings
# with nothing between them, are one text. What stands between backquotes is code.

function flush() {
  if (text != "") {
    gsub(/`[^`]*`/, "X", text)
    print name ":" first ": " text
  }
  text = kind = ""
}

# Adds a piece of that kind to the text, or begins another text.
function add(new_kind, piece) {
  if (kind != new_kind) {
    flush()
    first = FNR
  }
  kind = new_kind
  text = text piece
}

FNR == 1 {
  flush()
  name = FILENAME
  is_lua = name ~ /\.lua$/
  token = is_lua ? "\"([^\"\\\\]|\\\\.)*\"|'([^'\\\\]|\\\\.)*'|--" : "\"([^\"\\\\]|\\\\.)*\"|'([^'\\\\]|\\\\.)*'|/\\*|//"
  in_block = 0
}

{
  line = $0
  if (line ~ /^[ \t]*$/ && !in_block) flush()
  while (1) {
    if (in_block) {
      end = index(line, "*/")
      piece = end ? substr(line, 1, end - 1) : line
      sub(/^[ \t*]+/, " ", piece)
      add("comment", piece)
      if (!end) break
      in_block = 0
      line = substr(line, end + 2)
      flush()
    }
    if (!match(line, token)) {
      if (line !~ /^[ \t]*$/) flush()
      break
    }
    found = substr(line, RSTART, RLENGTH)
    before = substr(line, 1, RSTART - 1)
    line = substr(line, RSTART + RLENGTH)
    if (before !~ /^[ \t]*$/) flush()
    if (found == "/*") {
      flush()
      in_block = 1
    } else if (found == "//" || found == "--") {
      sub(/^[-\/ \t]+/, " ", line)
      add("lines", line)
      break
    } else if (is_lua || substr(found, 1, 1) == "\"") {
      add("string", substr(found, 2, length(found) - 2))
    }
  }
}

END { flush() }
