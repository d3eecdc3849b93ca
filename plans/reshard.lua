-- A big matrix on a mesh of two dimensions, and what x:redistribute is for: each part of the work
-- wants it to lie in another way. Nothing is trained: the program writes what each part leaves.
--
--   tpgen plans/reshard.lua -o out/ -D rows=16384 -D columns=8192 -D a=2 -D b=4
--
-- plan.txt tells for each move which steps it takes, over which links, and how many bytes. The same
-- without a plan: tpgen --move 'f32[16384,8192] on a=2,b=4: S(0) S(0) -> S(1) S(1)'

local args = settings{
  {"rows", 1024, "rows of the matrix"}, {"columns", 512, "columns of the matrix"},
  {"a", 2, "ranks along the mesh's first dimension"}, {"b", 4, "ranks along its second one"},
  {"planner", nil, "how a move's steps are chosen", choices = {"fastest", "greedy"}},
}
local rows, columns = args.rows, args.columns

-- Two machines, say, of four ranks each: b is within a machine, a goes from one to the other. tpgen
-- takes the way that is quickest over such links, which is not always the one of fewest bytes.
local mesh = device_mesh{
  {"a", args.a, bandwidth = 25e9, latency = 10e-6},
  {"b", args.b, bandwidth = 100e9, latency = 5e-6},
}

local Reshard = nn.module("Reshard", function(self)
  function self:forward(x)
    local out = {}

    -- It comes cut by rows over all ranks. What each row is to itself costs no move.
    local p = x:softmax(-1)

    -- What runs down the columns wants them whole: cut by columns, over both dimensions at once.
    -- Each rank sends every other the block that this one lacks, and nothing twice.
    out.cumulated = p:redistribute(mesh, {Shard(1), Shard(1)}):cumsum(0)

    -- Blocks: a cuts the rows, b the columns. Straight there, some ranks would get all that they
    -- need from the other machine; by way of the rows all get half of it from there.
    local blocks = out.cumulated:redistribute(mesh, {Shard(0), Shard(1)})
    out.blocks = blocks * 2

    -- The rows again, but b cuts them first, and a cuts each of b's parts: ranks that follow one
    -- another along a have rows that follow one another. That is another order than the mesh's.
    out.reordered = out.blocks:redistribute(mesh, {Shard(0, 1), Shard(0, 0)})

    -- From one order to the other each rank has at most one partner: a send and a receive.
    out.mesh_order = out.reordered:redistribute(mesh, {Shard(0, 0), Shard(0, 1)})

    -- Along b everybody is to have all columns of a's rows, in half the bytes: cast, then gathered.
    local narrow = out.blocks:redistribute(mesh.b, Replicate(), {forward_dtype = "bfloat16"})
    out.rounded = narrow:to("float32")

    -- The sums of the columns are pending along a, which cuts the rows, until they are reduced.
    -- They are so few that bytes count for nothing: the way is that of the least latency.
    out.sums = blocks:sum(0):redistribute(mesh, {Shard(0), Shard(0)})

    return out
  end
end)

return infer{
  model   = Reshard(),
  batch   = { input = distribute(randn{rows, columns}, mesh, {Shard(0), Shard(0)}) },
  outputs = function(model, batch) return model(batch.input) end,
  seed    = 45,
  planner = args.planner,
}
