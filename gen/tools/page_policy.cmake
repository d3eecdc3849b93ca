# Writes OUTPUT, the Content-Security-Policy of a page that runs SCRIPTS and has STYLE, and nothing else: by their hashes, SHA-256 in
# base64. The page has each text between its element's tags, with no blank added.
set(letters "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")

function(source_of path to)
  file(SHA256 ${path} hex)
  set(base64 "")
  # Three bytes are four letters; of the last two bytes three.
  foreach(at RANGE 0 63 6)
    string(SUBSTRING "${hex}0000" ${at} 6 three)
    math(EXPR number "0x${three}")
    foreach(shift 18 12 6 0)
      math(EXPR index "(${number} >> ${shift}) & 63")
      string(SUBSTRING ${letters} ${index} 1 letter)
      string(APPEND base64 ${letter})
    endforeach()
  endforeach()
  string(SUBSTRING ${base64} 0 43 base64)
  set(${to} "'sha256-${base64}='" PARENT_SCOPE)
endfunction()

set(scripts "")
foreach(path IN LISTS SCRIPTS)
  source_of(${path} source)
  string(APPEND scripts " ${source}")
endforeach()
source_of(${STYLE} style)
file(WRITE ${OUTPUT} "default-src 'none'; script-src${scripts}; style-src ${style}; base-uri 'none'; form-action 'none'")
