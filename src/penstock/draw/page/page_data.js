// Turns the inlined columns into typed arrays. All times leave this file in the unit of the axis,
// counted from the start of their own timeline.

// Digits that the widest letter of a kind, W, takes up.
const KIND = 1.5;

const DATA = JSON.parse(document.getElementById("data").textContent);

function running(deltas, factor) {
  const values = new Float64Array(deltas.length);
  let sum = 0;
  for (let i = 0; i < deltas.length; i++) {
    sum += deltas[i];
    values[i] = sum * factor;
  }
  return values;
}

function decode(raw) {
  const start = running(raw.start, raw.tick);
  const end = start.map((time, row) => time + raw.duration[row] * raw.tick);
  const timeline = {
    ...raw,
    count: start.length,
    start,
    end,
    stage: Int32Array.from(raw.stage),
    mb: Int32Array.from(raw.mb),
    slice: Int32Array.from(raw.slice),
    length: largest(end),
    curves: raw.curves.map((curve) => decodeCurve(curve, raw)),
  };
  timeline.laneOf = laneOf(timeline);
  timeline.edges = decodeEdges(raw, timeline);
  timeline.readers = readersOf(timeline);
  timeline.forms = labelForms(timeline);
  return timeline;
}

function decodeCurve(curve, raw) {
  return { time: running(curve.time, raw.tick), level: running(curve.level, raw.grain) };
}

function laneOf(timeline) {
  const lanes = new Int32Array(timeline.count);
  timeline.lanes.forEach((lane, number) => lanes.fill(number, lane.first, lane.end));
  return lanes;
}

// Edges sorted by reader: start[row] .. start[row + 1] are what a row reads.
function decodeEdges(raw, timeline) {
  const start = new Int32Array(timeline.count + 1);
  const writer = new Int32Array(raw.edges.back.length);
  for (let row = 0; row < timeline.count; row++) {
    start[row + 1] = start[row] + raw.edges.count[row];
    for (let edge = start[row]; edge < start[row + 1]; edge++) {
      writer[edge] = row - raw.edges.back[edge];
    }
  }
  const delay = Float64Array.from(raw.edges.delay, (ticks) => ticks * raw.tick);
  return { start, writer, buffer: raw.edges.buffer, delay };
}

// The same edges the other way round: start[row] .. start[row + 1] index the rows that read it.
function readersOf(timeline) {
  const { start: first, writer } = timeline.edges;
  const start = new Int32Array(timeline.count + 1);
  for (const row of writer) start[row + 1]++;
  for (let row = 0; row < timeline.count; row++) start[row + 1] += start[row];
  const fill = start.slice();
  const reader = new Int32Array(writer.length);
  const edgeOf = new Int32Array(writer.length);
  for (let row = 0; row < timeline.count; row++) {
    for (let edge = first[row]; edge < first[row + 1]; edge++) {
      const place = fill[writer[edge]]++;
      reader[place] = row;
      edgeOf[place] = edge;
    }
  }
  return { start, reader, edgeOf };
}

function largest(values) {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

// The forms of a label, fullest first, with the letters its longest text takes: the ops of a
// timeline change their form together. The tall form puts the slice on a second line.
function labelForms(timeline) {
  const digits = (values) => String(largest(values)).length;
  const mb = digits(timeline.mb);
  const slice = largest(timeline.slice) > 0 ? digits(timeline.slice) + 1 : 0;
  const forms = [
    { name: "short", letters: KIND + mb + slice },
    { name: "unit", letters: mb + slice },
    { name: "letter", letters: KIND },
  ];
  if (slice) forms.splice(1, 0, { name: "tall", letters: KIND + mb });
  if (timeline.staged) {
    forms.unshift({ name: "full", letters: KIND + mb + slice + digits(timeline.stage) });
  }
  return forms;
}

function unitText(timeline, row) {
  const slice = timeline.slice[row];
  return slice ? `${timeline.mb[row]}.${slice}` : `${timeline.mb[row]}`;
}

function opText(timeline, row) {
  return `${timeline.stage[row]}${timeline.kind[row]}${unitText(timeline, row)}`;
}

function number(value) {
  return String(Number(value.toFixed(4)));
}

// The first place in [low, high) whose value is above `limit`, in ascending values.
function placeAbove(values, limit, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

const TIMELINES = DATA.timelines.map(decode);
const LENGTH = Math.max(...TIMELINES.map((timeline) => timeline.length), 1e-9);
const PEAK = Math.max(...TIMELINES.flatMap((timeline) => timeline.peak), 1e-9);
