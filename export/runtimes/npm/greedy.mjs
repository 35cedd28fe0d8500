// Greedy generation with ONNX Runtime in JavaScript: one loop for Node and for browsers, as in ../program.py.

// Returns `n` ids for each prompt, and the seconds from the start to each of the n steps.
export async function greedy(ort, session, prompts, n) {
  const toTensor = (rows) =>
    new ort.Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);
  const width = Math.max(...prompts.map((prompt) => prompt.length));
  const padded = (row) => [...Array(width - row.length).fill(0), ...row];
  let ids = prompts.map(padded);
  let mask = prompts.map((prompt) => padded(prompt.map(() => 1)));
  let positions = prompts.map((prompt) => padded([...prompt.keys()]));
  const cache = {};
  for (const { name, shape } of session.inputMetadata.filter(({ name }) => name.startsWith("past"))) {
    cache[name] = new ort.Tensor("float32", new Float32Array(), [prompts.length, shape[1], 0, shape[3]]);
  }
  const [replies, times, start] = [prompts.map(() => []), [], performance.now()];
  while (times.length < n) {
    const [input_ids, attention_mask, position_ids] = [ids, mask, positions].map(toTensor);
    const outputs = await session.run({ input_ids, attention_mask, position_ids, ...cache });
    ids = likeliest(outputs.logits).map((id) => [id]);
    replies.forEach((reply, row) => reply.push(...ids[row]));
    times.push((performance.now() - start) / 1000);
    mask = mask.map((row) => [...row, 1]);
    positions = positions.map((row) => [row.at(-1) + 1]);
    for (const name in cache) cache[name] = outputs[name.replace("past_key_values", "present")];
  }
  return { ids: replies, times };
}

// The likeliest token of each row, from logits (B, T, V).
function likeliest({ data, dims: [batch, length, size] }) {
  return Array.from({ length: batch }, (_, row) => {
    const last = data.subarray((row * length + length - 1) * size, (row + 1) * length * size);
    return last.reduce((best, value, id) => (value > last[best] ? id : best), 0);
  });
}
