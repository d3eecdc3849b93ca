-- Training on preferences: pairs of a better and a worse answer to a prompt, or single answers that are good or bad, and what a
-- reference says of them.
--
-- A batch has input [pairs, 2, tokens] and target, the token behind each, or -100 where it is no part of an answer: run.sh makes
-- it of --data FILE.jsonl with lines {"prompt", "chosen", "rejected"}. Of rated answers it has rating [answers], 1 or 0, too, and
-- the second row is the prompt with another one's answer: run.sh makes it of lines {"prompt", "completion", "label"}.

local M = {}

M.settings = {
  title = "preferences",
  {"beta", 0.1, "how far the policy may go from the reference: the greater, the less"},
  {"reference", "file", "file: an input reference [pairs, 2]; write: a program that makes it, and trains nothing; with lora "
    .. "the model without its adapters", choices = {"file", "write", "adapters"}},
}

M.pair_settings = {
  title = "preferences",
  {"preference", "sigmoid", "the loss: sigmoid (DPO), hinge (SLiC), ipo", choices = {"sigmoid", "hinge", "ipo"}},
  {"smoothing", 0, "the probability that a pair is the wrong way round", type = "number"},
  {"sft", 0, "the weight of the loss of the better answers, added as in RPO", type = "number"},
}

M.rated_settings = {
  title = "preferences",
  {"preference", "kto", "the loss: kto, or apo_zero, which compares with no other answers", choices = {"kto", "apo_zero"}},
  {"good", 1, "the weight of good answers' loss", type = "number"},
  {"bad", 1, "the weight of bad answers' loss", type = "number"},
}

-- What says how probable the answers were: "adapters", the model without them; "file"; or "write", this program.
function M.reference(args)
  if args.reference == "adapters" and not args.lora then error("reference=adapters: there are none without lora") end
  return args.reference == "file" and args.lora and "adapters" or args.reference
end

-- The batch, cut over the ranks that share it. with_reference: it has an input for what the reference says; rated: single answers.
function M.batch(p, vocab, seq, with_reference, rated)
  if p.cp > 1 then error("pairs are not cut along their sequences: leave out cp") end
  return p.distribute{
    input = randint(0, vocab){p.batch, 2, seq}, target = randint(-100, vocab){p.batch, 2, seq},
    reference = with_reference and randn{p.batch, 2} or nil,
    rating = rated and randint(0, 2){p.batch} or nil,
  }
end

-- The tokens of both answers as samples of their own.
function M.samples(x) return x:flatten(0, 1) end

-- The sums of the answers' log-probabilities, [samples]. logits: [samples, tokens, vocab].
function M.sums(logits, labels)
  return -F.cross_entropy(logits, labels, {dim = -1, reduction = "none"}):sum(-1)
end

-- Those of both answers, [pairs, 2], and how many tokens they have. logits: [2 pairs, tokens, vocab].
function M.log_probs(logits, target)
  local labels = M.samples(target)
  return M.sums(logits, labels):view(-1, 2), labels:ne(-100):float():sum(-1):view(-1, 2)
end

-- The program that writes what the model, as the reference, says of a batch.
function M.writer(args, model, batch, names)
  return infer{model = model, batch = batch, names = names, seed = args.seed, outputs = function(model, batch)
    return {reference = (M.log_probs(model(M.samples(batch.input)), batch.target))}
  end}
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

-- The loss of each rated answer, of sums of log-probabilities [answers] (KTO, arXiv:2402.01306; APO, arXiv:2408.06266), as TRL
-- has it; and the rewards. divergence: how far the policy is from the reference, a number.
function M.of_rated(args, policy, reference, rating, divergence)
  local reward, good = policy - reference, rating:eq(1)
  local gain = good:float() * 2 - 1
  local loss = 1 - (args.beta * gain * (reward - divergence)):sigmoid()
  return loss * F.where(good, args.good, args.bad), args.beta * reward:detach()
end

-- The metrics of rated answers: the mean rewards of good and of bad ones.
function M.rated_metrics(rewards, rating)
  local function mean_of(value)
    local which = rating:eq(value):float()
    return (rewards * which):sum() / which:sum():clamp_min(1)
  end
  local good, bad = mean_of(1), mean_of(0)
  return {rewards_chosen = good, rewards_rejected = bad, margin = good - bad}
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
