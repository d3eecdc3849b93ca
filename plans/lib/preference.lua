-- Training on preferences: pairs of a better and a worse answer to a prompt, and what a reference says of both.
--
-- A batch has input [pairs, 2, tokens] and target, the token behind each, or -100 where it is no part of an answer: run.sh makes
-- it of --data FILE.jsonl with lines {"prompt", "chosen", "rejected"}.

local M = {}

M.settings = {
  title = "preferences",
  {"beta", 0.1, "how far the policy may go from the reference: the greater, the less"},
  {"preference", "sigmoid", "the loss: sigmoid (DPO), hinge (SLiC), ipo", choices = {"sigmoid", "hinge", "ipo"}},
  {"smoothing", 0, "the probability that a pair is the wrong way round", type = "number"},
  {"sft", 0, "the weight of the loss of the better answers, added as in RPO", type = "number"},
  {"reference", "file", "file: an input reference [pairs, 2]; write: a program that makes it, and trains nothing; with lora "
    .. "the model without its adapters", choices = {"file", "write", "adapters"}},
}

-- The batch, cut over the ranks that share it. with_reference: it has an input for what the reference says.
function M.batch(p, vocab, seq, with_reference)
  if p.cp > 1 then error("pairs are not cut along their sequences: leave out cp") end
  return p.distribute{
    input = randint(0, vocab){p.batch, 2, seq}, target = randint(-100, vocab){p.batch, 2, seq},
    reference = with_reference and randn{p.batch, 2} or nil,
  }
end

-- The tokens of both answers as samples of their own.
function M.samples(x) return x:flatten(0, 1) end

-- The sums of the answers' log-probabilities, [pairs, 2], and how many tokens they have. logits: [2 pairs, tokens, vocab].
function M.log_probs(logits, target)
  local labels = M.samples(target)
  local each = F.cross_entropy(logits, labels, {dim = -1, reduction = "none"})
  return -each:sum(-1):view(-1, 2), labels:ne(-100):float():sum(-1):view(-1, 2)
end

-- The loss of each pair, of sums of log-probabilities [pairs, 2], as TRL has it; and the rewards of both answers.
function M.of_pairs(args, policy, reference, tokens)
  if args.preference == "ipo" then policy, reference = policy / tokens, reference / tokens end
  local reward = policy - reference
  local margin = reward:select(1, 0) - reward:select(1, 1)
  local loss
  if args.preference == "sigmoid" then
    loss = -F.logsigmoid(args.beta * margin)
    if args.smoothing > 0 then loss = loss * (1 - args.smoothing) - F.logsigmoid(-args.beta * margin) * args.smoothing end
  elseif args.preference == "hinge" then
    loss = (1 - args.beta * margin):relu()
  else
    loss = (margin - 1 / (2 * args.beta)):square()
  end
  return loss, args.beta * reward:detach()
end

-- The metrics that trainers of preferences show.
function M.metrics(rewards)
  local better, worse = rewards:select(1, 0), rewards:select(1, 1)
  return {rewards_chosen = better:mean(), rewards_rejected = worse:mean(), margin = (better - worse):mean(),
    accuracy = better:gt(worse):float():mean()}
end

-- The last token of each answer that a target names, as a mask [samples, tokens]: its place is behind that of the last label.
function M.last_token(target)
  local labels = M.samples(target)
  local places = F.arange(labels.shape[2])
  local last = F.where(labels:ne(-100), places, -1):amax(-1, true) + 1
  return places:eq(last):float()
end

return M
