// Choosing the next token, as gptcore/engine/sampling.py does, which names the papers.

// Returns [ids, weights] of the tokens that may be chosen, in no order; the weights have any sum.
export function candidates(logits, settings, reply = []) {
  const { temperature, top_k: topK, top_p: topP, min_p: minP, repetition_penalty: penalty } = settings;
  if (penalty !== 1) logits = penalised(logits, reply, penalty);
  if (temperature === 0) return [[likeliest(logits)], [1]];
  let ids = [...logits.keys()];
  if (0 < topK && topK < logits.length) {
    const lowest = logits.toSorted()[logits.length - topK];
    let room = topK - ids.filter((id) => logits[id] > lowest).length; // for those that equal it
    ids = ids.filter((id) => logits[id] > lowest || (logits[id] === lowest && room-- > 0));
  }
  const peak = ids.reduce((most, id) => Math.max(most, logits[id]), -Infinity);
  let weights = ids.map((id) => Math.exp((logits[id] - peak) / temperature));
  if (topP < 1) {
    const order = [...ids.keys()].sort((a, b) => weights[b] - weights[a]);
    const most = topP * sum(weights);
    let before = 0;
    const kept = order.filter((i) => {
      const isKept = before < most;
      before += weights[i];
      return isKept;
    });
    ids = kept.map((i) => ids[i]);
    weights = kept.map((i) => weights[i]);
  }
  return [ids, weights.map((weight) => (weight < minP ? 0 : weight))]; // the largest weight is 1
}

// `draw`: a random number in [0, 1).
export function sample(logits, settings, draw, reply) {
  const [ids, weights] = candidates(logits, settings, reply);
  let left = draw * sum(weights);
  const at = weights.findIndex((weight) => (left -= weight) < 0);
  return ids[at < 0 ? weights.findLastIndex((weight) => weight > 0) : at];
}

// Returns a token's log probability and the likeliest tokens, [[id, log probability], ...].
export function likelihood(logits, id, nTop) {
  const peak = logits[likeliest(logits)];
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - peak);
  const log = (other) => logits[other] - peak - Math.log(total);
  const left = logits.slice();
  const top = Array.from({ length: nTop }, () => {
    const best = likeliest(left);
    left[best] = -Infinity;
    return [best, log(best)];
  });
  return [log(id), top];
}

// Returns a function that draws numbers in [0, 1): sfc32, by Chris Doty-Humphrey (PractRand).
export function random(seed) {
  let [a, b, c, counter] = [0, seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0, 1];
  const next = () => {
    const t = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + t) | 0;
    return (t >>> 0) / 2 ** 32;
  };
  for (let i = 0; i < 12; i += 1) next();
  return next;
}

export function likeliest(logits) {
  let best = 0;
  for (let id = 1; id < logits.length; id += 1) if (logits[id] > logits[best]) best = id;
  return best;
}

function penalised(logits, reply, penalty) {
  const changed = logits.slice();
  for (const id of new Set(reply)) changed[id] *= logits[id] > 0 ? 1 / penalty : penalty;
  return changed;
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
