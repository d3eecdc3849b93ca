#!/usr/bin/env bash
# What each style does, alone, on two ranks: the bytes of parameters and of outputs that rank 0 keeps, which
# tell how they are cut, and the collectives of a forward. Sizes are such that each way to cut a tensor gives
# another number: [5, 6, 8] is 960 bytes, cut in dimension 0 it is 576, in dimension 1 or 2 480.
. "$(dirname "$0")/../common.sh"

cat > "$WORK/head.lua" << 'END'
local mesh = device_mesh{ {"tp", 2} }
local Whole = nn.module("Whole", function(self)
  function self:forward(x) return x:replicate() end
end)
local Two = nn.module("Two", function(self)
  function self:forward(x, y) return x * 2, y * 2 end
end)
local Split = nn.module("Split", function(self)
  function self:forward(x) return x:redistribute(mesh.tp, Shard(2)) end
end)
local function plan(model, style)
  return infer{
    model = parallelize(model, mesh.tp, style),
    batch = {input = randn{5, 6, 8}, other = randn{5, 4, 8}, ids = randint(9){5, 6}},
    outputs = function(model, batch)
      local a, b = model(args.of == "ids" and batch.ids or batch.input, args.of == "two" and batch.other or nil)
      return {a = a, b = b}
    end,
  }
end
END
figure() { sed -n "s/^ *\"$1\": *\([0-9]*\),\{0,1\}\$/\1/p" "$WORK/out/plan.json" | tail -n 1; }

checked=0
while IFS='|' read -r expected of model style; do
  { cat "$WORK/head.lua"; echo "return plan($model, $style)"; } > "$WORK/plan.lua"
  "$TPGEN" "$WORK/plan.lua" -o "$WORK/out" -D "of=$of" > "$WORK/log" 2>&1 ||
    { fail "$style of $model: $(< "$WORK/log")"; continue; }
  got="$(figure parameters) $(figure outputs) $("$TOOLS/collectives" "$WORK/out/plan.json" | cut -d ' ' -f 2 | xargs)"
  [ "$got" = "$expected" ] || fail "$style of $model: $got, not $expected"
  checked=$((checked + 1))
done << 'END'
252 840 |input|nn.Linear(8, 13)|Colwise()
252 1560 all_gather|input|nn.Linear(8, 13)|Colwise{output_layouts = Replicate()}
260 1560 all_reduce|input|nn.Linear(8, 13)|Rowwise()
260 780 reduce_scatter|input|nn.Linear(8, 13)|Rowwise{output_layouts = Shard(1)}
144 480 |ids|nn.Embedding(9, 8)|Colwise()
160 960 all_reduce|ids|nn.Embedding(9, 8)|Rowwise()
160 480 reduce_scatter|ids|nn.Embedding(9, 8)|Rowwise{output_layouts = Shard(1)}
32 480 |input|nn.RMSNorm(8)|SequenceParallel()
32 576 |input|nn.RMSNorm(8)|SequenceParallel{sequence_dim = 0}
0 480 all_gather|input|Whole()|SequenceParallel()
0 576 |input|nn.ReLU()|PrepareModuleInput{desired_input_layouts = Shard(0)}
0 1280 |two|Two()|PrepareModuleInput{desired_input_layouts = {false, Shard(1)}}
0 864 |two|Two()|PrepareModuleInput{desired_input_layouts = {Shard(1), Shard(0)}}
0 960 all_gather|input|Split()|PrepareModuleOutput{desired_output_layouts = Replicate()}
0 1280 |two|Two()|PrepareModuleOutput{desired_output_layouts = {false, Shard(1)}}
0 576 all_gather|input|Whole()|PrepareModuleInputOutput{desired_input_layouts = Shard(1), desired_output_layouts = Shard(0)}
END
finish "$checked styles place parameters, outputs and collectives as they should"
