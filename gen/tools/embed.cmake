# Writes OUTPUT, a C file that holds the text of FILES (relative to SOURCE_DIR, or NAME=PATH) as the table
# `embedded` of util/util.h, sorted by name. Each text is followed by a zero that its size does not count.
list(SORT FILES)
set(arrays "")
set(rows "")
set(n 0)
foreach(name IN LISTS FILES)
  set(path ${SOURCE_DIR}/${name})
  if(name MATCHES "^([^=]*)=(.*)$")
    set(name ${CMAKE_MATCH_1})
    set(path ${CMAKE_MATCH_2})
  endif()
  file(READ ${path} hex HEX)
  string(REPEAT "[0-9a-f]" 32 sixteen_bytes)
  string(REGEX REPLACE "(${sixteen_bytes})" "\\1\n  " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "/* ${name} */\nstatic const unsigned char file_${n}[] = {\n  ${hex}0};\n\n")
  string(APPEND rows "  {\"${name}\", file_${n}, sizeof file_${n} - 1},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUTPUT} "/* Made by gen/tools/embed.cmake from templates/, runtime/ and gen/. */\n"
  "#include \"util/util.h\"\n\n${arrays}"
  "const struct embedded embedded[] = {\n${rows}  {NULL, NULL, 0},\n};\n"
  "const int nembedded = ${n};\n")
