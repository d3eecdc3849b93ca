-- Distillation: a language model of causal_lm.lua learns what a larger one says of each next token, beside the token itself.
-- The teacher is frozen, without dropout, and laid out as the student is:
--
--   tpgen plans/distill.lua -o out/ -D config=Qwen2.5-0.5B/config.json -D teacher=Qwen2.5-7B/config.json -D tp=2
--   out/run.sh --weights Qwen2.5-0.5B --weights teacher=Qwen2.5-7B --data chat.jsonl --export tuned
--
-- tpgen plans/distill.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"
local shared, training = require "lib.settings", require "lib.training"

local distillation = {
  title = "distillation",
  {"teacher", nil, "the teacher's config.json; by default a small model", type = "text"},
  {"temperature", 1, "the logits of both are divided by it", type = "number"},
  {"alpha", 0.5, "the weight of what the teacher says; that of the labels is 1 - alpha", type = "number"},
  {"teacher_dtype", "float32", "how the teacher's matrices are stored", choices = {"float32", "bfloat16", "int8", "nf4"}},
}
local c = args.config and families.read(args.config) or families.small{model_type = "llama"}
local args = causal_lm.settings(c, {"n_layers", "seq", "pad"}, {}, 1024, {distillation, shared.text, shared.documents})
local of_teacher = args.teacher and families.read(args.teacher) or families.small{model_type = "llama"}
if of_teacher.vocab ~= c.vocab then error("teacher: its vocabulary has " .. of_teacher.vocab .. " tokens, and the student's " .. c.vocab) end

local documents = args.documents or args.packed
local p, student, names = causal_lm.build(c, args, documents)
local teacher, names_of_teacher = causal_lm.add(of_teacher, args, p, documents)
store_frozen(teacher, args.teacher_dtype)
local model = nn.module("Distillation", function(self) self.student, self.teacher = student, teacher end)()

local function forward(model, batch)
  return {student = model.student(batch.input), teacher = model.teacher(batch.input):detach()}
end
local function loss(output, batch)
  local t, labels = args.temperature, batch.target:ne(-100):float()
  local said = F.log_softmax(output.teacher / t, -1)
  local apart = (said:exp() * (said - F.log_softmax(output.student / t, -1))):sum(-1)
  local of_labels = F.cross_entropy(output.student, batch.target, {dim = -1, reduction = "none"})
  return ((args.alpha * t * t * apart + (1 - args.alpha) * of_labels) * labels):sum() / labels:sum()
end
return train(training.options(args, p, {
  model = model, forward = forward, loss = loss,
  batch = training.next_token_batch(args, p, c.vocab, c.seq, {documents = args.documents, longest = args.longest}, args.packed),
  names = training.of_models{student = causal_lm.all_names(c, names),
    teacher = training.behind("teacher.", causal_lm.all_names(of_teacher, names_of_teacher))}, export = "student.*",
}))
