#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Objects of the runtime, kept for other programs. CMakeLists.txt puts this script ahead of the compiler:
#
#   object_cache.sh STATE COMPILER ARGUMENTS...   an object, from the cache or from the compiler
#   object_cache.sh --begin STATE COMPILER FLAGS...  before a build: notes in the file STATE which compiler
#                                                 it is, and removes the oldest objects above the limit
#
# An object's name in the cache is the hash of its text behind the preprocessor, so all headers are in
# it, of the flags that are left then, and of what the compiler says it is and runs, -march=native
# resolved. Files come into place by a rename: builds at the same time do not disturb one another.
# Whatever goes wrong, the compiler runs as if there were no cache.
set -u
cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/tpgen/objects
limit=${TPGEN_OBJECT_CACHE_MIB:-256} # MiB

# The compiler and what it runs, as files: another one in their place is noticed.
files_of() { # COMPILER, and the program that compiles
  stat -L -c '%n %d %i %s %.Y %.Z' -- "$@" 2>/dev/null
}

begin() { # STATE COMPILER FLAGS...
  local state=$1 compiler said cc1
  compiler=$(command -v -- "$2") || return
  said=$(cd / && "${@:2}" '-###' -x c -c /dev/null -o /dev/null 2>&1 | grep -v '^COLLECT_') || return
  cc1=$(grep -oE '[^" ]*/cc1 ' <<<"${said}" | head -n 1)
  cc1=${cc1% }
  {
    echo "${compiler}"
    echo "${cc1:-${compiler}}"
    files_of "${compiler}" "${cc1:-${compiler}}"
    {
      LC_ALL=C "${compiler}" --version
      "$("${compiler}" -print-prog-name=as)" --version
      # Names of temporary files are others each time.
      sed -E 's|/tmp/[^" ]*||g' <<<"${said}"
      files_of "${compiler}" "${cc1:-${compiler}}"
    } | sha256sum
  } >"${state}.new" && mv "${state}.new" "${state}"
  trim
}

# The oldest go: those that no build has used for the longest time.
trim() {
  local size name sum=0 most=$((limit * 1024 * 1024))
  [[ -d ${cache} ]] || return
  find "${cache}" -name 'new.*' -mmin +60 -delete 2>/dev/null # of builds that were killed
  find "${cache}" -name '*.o' -printf '%T@ %s %p\n' 2>/dev/null | sort -rn | while read -r _ size name; do
    sum=$((sum + size))
    ((sum <= most)) || rm -f -- "${name}"
  done
}

# Sets hashed and preprocessed, the arguments that count and those of the preprocessor, and out.
# Fails where an object depends on more than its text.
read_arguments() {
  local compiles=''
  hashed=() preprocessed=() out=''
  while (($# > 0)); do
    case $1 in
    -c) compiles=1 ;;
    -o) out=$2 && shift ;;
    -g* | -pg | --coverage | -fprofile* | -save-temps* | -E | -S | -M | -MM | @* | -flto* | -fdump*) return 1 ;;
    -MF | -MT | -MQ) preprocessed+=("$1" "$2") && shift ;;
    -I | -isystem | -D | -include) preprocessed+=("$1" "$2") && shift ;;
    -I* | -D* | -MD | -MMD) preprocessed+=("$1") ;;
    *.c) preprocessed+=("$1") ;;
    -ffile-prefix-map=* | -fmacro-prefix-map=*) preprocessed+=("$1") ;;
    *) preprocessed+=("$1") hashed+=("$1") ;;
    esac
    shift
  done
  [[ -n ${compiles} && ${out} == *.o ]]
}

# Takes the object from the cache. Sets kept, its name there.
take() { # STATE COMPILER
  local compiler cc1 key known=()
  mapfile -t known <"$1" || return
  ((${#known[@]} == 5)) || return
  compiler=${known[0]} cc1=${known[1]}
  [[ $(command -v -- "$2") == "${compiler}" &&
    $(files_of "${compiler}" "${cc1}") == "${known[2]}"$'\n'"${known[3]}" ]] || return
  key=$({
    printf '%s\n' "${known[4]}" "${hashed[@]}"
    "$2" "${preprocessed[@]}" -E -P || echo "failed $$ ${RANDOM}"
  } 2>/dev/null | sha256sum) || return
  key=${key%% *}
  kept=${cache}/${key:0:2}/${key}.o
  [[ -s ${kept} ]] && cp -- "${kept}" "${out}.new" 2>/dev/null && mv -- "${out}.new" "${out}" &&
    touch -c -- "${kept}"
}

keep() {
  local new=${kept%/*}/new.$$.${RANDOM}
  mkdir -p -m 700 -- "${kept%/*}" 2>/dev/null && cp -- "${out}" "${new}" 2>/dev/null &&
    mv -- "${new}" "${kept}" || rm -f -- "${new}"
}

if [[ ${1:-} == --begin ]]; then
  begin "${@:2}" 2>/dev/null
  exit 0
fi
state=$1 kept=''
shift
if [[ ${cache} != /* || ! -r ${state} ]] || ! read_arguments "${@:2}"; then exec "$@"; fi
if take "${state}" "$1"; then exit 0; fi
# What the compiler warns of is not kept: a build shows it each time.
said=$("$@" 2>&1) || {
  status=$?
  printf '%s\n' "${said}" >&2
  exit "${status}"
}
if [[ -n ${said} ]]; then
  printf '%s\n' "${said}" >&2
elif [[ -n ${kept} ]]; then
  keep 2>/dev/null
fi
exit 0
