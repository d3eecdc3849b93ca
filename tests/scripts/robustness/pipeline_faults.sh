#!/usr/bin/env bash
# Faults planted in the text of a pipeline's program: each ends the run with a message that says what does not fit,
# or gives other losses. None hangs. (unit/test_prove.c plants faults in the lists that tpgen proves before it writes.)
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1 CUDA_ON_CPU_DEADLINE=5
patience=60
make_runtimes plain cuda
make right plain $runtime_plan -D schedule=1f1b -D microbatches=4
make on_gpu cuda $runtime_plan -D schedule=1f1b -D microbatches=4
for right in right on_gpu; do start "$WORK/$right" "$WORK/$right" --steps 3 || fail "$right: no run"; done
same_losses on_gpu "$WORK/on_gpu.losses" "$WORK/right.losses"

# planted OF NAME EXPECTED FILE EDIT...: the program OF, with its FILE edited by sed, ends with EXPECTED, or has other
# losses if that is empty.
planted() {
  local to=$WORK/$2 kind=plain
  [ "$1" = right ] || kind=cuda
  cp -r "$WORK/$1" "$to" && rm -f "$to"/{ranks,*.o}
  sed -i -E "${@:5}" "$to/$4"
  ! cmp -s "$to/$4" "$WORK/$1/$4" || { fail "$2: nothing is planted"; return; }
  make_ranks "$to" $kind || { fail "$2: it does not compile"; return; }
  if [ -z "$3" ]; then
    start "$to" "$to" --steps 3 || { fail "$2: no run"; return; }
    ! cmp -s "$to.losses" "$WORK/right.losses" || fail "$2: the right losses"
  elif start "$to" "$to" > /dev/null; then
    fail "$2: it runs"
  else
    grep -qE "$3" "$to.out" || { fail "$2: another message"; cat "$to.out"; }
  fi
}

action='( *begin_action[^\n]*// NAME[^\n]*\n[^\n]*\n)'
swapped="s#${action/NAME/1F0}${action/NAME/1B0}#\\2\\1#"
beside "$WORK/1.log" planted right swapped '' step_stage1.c -z "$swapped"
beside "$WORK/2.log" planted right no_post 'await_received.*no receive was posted' step_stage1.c 's/post_forward\(i,/if (i) &/'
beside "$WORK/3.log" planted right no_await '' step_stage1.c '/TRANSFER\("1RECV_F".*await_received/ d'
beside "$WORK/4.log" planted right no_send 'it waits for a message, tag 0, .* from rank 0' step_stage0.c \
  '/TRANSFER\("0SEND_F"/,/;$/ d'
beside "$WORK/5.log" planted right other_tag \
  'it waits for a message, tag 2, .* from rank 0 .*; it has not asked for a message, tag 0, .* from rank 0' \
  step_stage1.c 's/(\/\* tag \*\/) 0 \+/\1 1 +/'
beside "$WORK/6.log" planted right other_count 'has 8 bytes from rank 0, which calls MPI_message .* with 16 bytes' \
  step_stage1.c 's/post_receive\((\w+), 4,/post_receive(\1, 2,/'
beside "$WORK/7.log" planted right other_microbatch 'it has not asked for a message, tag 1, .* from rank 0' step_stage1.c \
  's/post_forward\(i,/post_forward(0,/'
beside "$WORK/8.log" planted right other_action 'it waits for a message, tag 4, .* from rank 1' step_stage0.c -z \
  's#(// 0F0\n *)forward#\1backward#'
# The forward of a micro-batch ahead of the backward of the one before, which has the same slot.
beside "$WORK/9.log" planted on_gpu gpu_swapped 'which ncclSend .* reads; nothing orders' step_stage1.cu -z \
  's#(  for [^\n]*\n)( *)begin_action\(i, 0\);([^\n]*)\n *forward\(\);\n#  begin_action(0, 0);\n  forward();\n\1\2if (i < 3) {\n\2  begin_action(i + 1, 0);\3\n\2  forward();\n\2}\n#'
beside "$WORK/10.log" planted on_gpu gpu_no_receive 'it has not asked for a message|in vain for rank' step_stage1.cu \
  '/begin_on\(stage_0_to_1_stream/,/await\(/ d'
beside "$WORK/11.log" planted on_gpu gpu_other_count 'the ranks disagree' step_stage1.cu \
  '/TRANSFER\("1RECV_F"/,/;$/ s/, 4, ncclFloat/, 2, ncclFloat/'
all_are_done
cat "$WORK"/*.log
finish "11 planted faults"
