#!/usr/bin/env bash
# A step of a Llama that was exported beside one of plans/llama3.lua, both tpgen's (CPU): the same sizes, weights
# and tokens, in turn. Tells the processor time of a run of each, the least of several, and their ratio.
#   ROUNDS   (5)
#   STEPS    in a run   (4)
set -euo pipefail
. "$(dirname "$0")/common.sh"
has_modules torch && has_modules transformers || exit 0 # they make the archive
"$PYTHON" - "$work" << 'PROGRAM'
import sys
import numpy
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=8192, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
                     num_key_value_heads=4, max_position_embeddings=256, rms_norm_eps=1e-5)
config.use_cache = False


class Wrapper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaForCausalLM(config)

    def forward(self, input):
        return self.model(input_ids=input).logits


torch.manual_seed(0)
wrapper = Wrapper().eval()
program = torch.export.export(wrapper, (torch.randint(0, 8192, (4, 256)),), strict=False)
torch.export.save(program, sys.argv[1] + "/llama.pt2")
save_file({k: v.contiguous() for k, v in wrapper.model.state_dict().items()}, sys.argv[1] + "/llama.safetensors")
data = torch.randint(0, 8192, (4, 257))
save_file({"input": data[:, :-1].contiguous(), "target": data[:, 1:].contiguous()}, sys.argv[1] + "/batch.safetensors")
PROGRAM

cd "$root"
sizes=(dim=512 n_layers=8 n_heads=8 n_kv_heads=4 hidden=1408 vocab=8192 seq=256 batch=4 theta=10000 eps=1e-5
  lr=1e-3 beta1=0.9 beta2=0.95 weight_decay=0.1 clip=1.0)
"$TPGEN" plans/llama3.lua "${sizes[@]/#/-D}" -o "$work/written"
"$TPGEN" plans/torch_export.lua -D model="$work/llama.pt2" -D lr=1e-3 -D beta2=0.95 -D weight_decay=0.1 -D clip=1.0 -o "$work/exported"
declare -A weights=([written]="$work/llama.safetensors" [exported]="$work/llama.pt2")
for name in written exported; do
  "$work/$name/run.sh" --steps 1 --weights "${weights[$name]}" --data "$work/batch.safetensors" > /dev/null 2>&1
done
for ((round = 1; round <= ${ROUNDS:-$(short_or 1 5)}; round++)); do
  for name in written exported; do
    TIMEFORMAT=%U
    { time OMP_NUM_THREADS=1 "$work/$name/run.sh" --steps "${STEPS:-4}" --weights "${weights[$name]}" --data "$work/batch.safetensors" \
      --metrics "$work/$name.jsonl" > /dev/null 2>&1; } 2>> "$work/$name.seconds"
    echo "round $round  $name  $(tail -n 1 "$work/$name.seconds") s"
  done
done
least() { sort -g "$work/$1.seconds" | head -n 1; }
loss() { sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$work/$1.jsonl" | tail -n 1; }
echo "plans/llama3.lua: $(least written) s, loss $(loss written); exported: $(least exported) s, loss $(loss exported)"
awk -v a="$(least written)" -v b="$(least exported)" 'BEGIN { printf "exported / written: %.3f\n", b / a }'
