// Paints what surrounds the ops: the time axis, grid lines, names and peaks.

// Marks 1, 2 or 5 times a power of ten apart, at least 70 pixels.
function markStep() {
  const least = 70 / view.scale;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

function eachMark(work) {
  const step = markStep();
  const right = Math.min(view.left + plotWidth() / view.scale, LENGTH);
  for (let count = Math.ceil(view.left / step - 1e-9); count * step <= right * (1 + 1e-9); count++) {
    work(count * step, timeToX(count * step));
  }
}

function paintGrid() {
  pen.strokeStyle = theme.line;
  pen.lineWidth = 1;
  pen.beginPath();
  eachMark((_, x) => {
    pen.moveTo(Math.round(x) + 0.5, AXIS);
    pen.lineTo(Math.round(x) + 0.5, view.height);
  });
  pen.stroke();
}

function paintAxis() {
  pen.fillStyle = theme.paper;
  pen.fillRect(0, 0, view.width, AXIS);
  pen.fillStyle = theme.faint;
  write("time", GUTTER - 10, AXIS / 2, "right", 11);
  write("peak", view.width - MARGIN + 10, AXIS / 2, "left", 11);
  eachMark((time, x) => {
    if (x < view.width - MARGIN - 14) write(number(time), x, AXIS / 2, "center", 11);
  });
  pen.fillStyle = theme.line;
  pen.fillRect(0, AXIS - 1, view.width, 1);
}

function paintName(row) {
  const middle = row.top - top() + row.height / 2;
  if (row.kind === "title") return paintTitle(row, middle + 3);
  const compute = row.kind === "lane" && row.lane.stream === "compute";
  const words = row.kind === "memory" ? "memory" : compute ? `device ${row.device}` : row.lane.stream;
  pen.fillStyle = compute ? theme.ink : theme.faint;
  write(words, GUTTER - 10, middle, "right", compute ? 12 : 10.5);
  if (row.kind === "memory") {
    write(number(row.timeline.peak[row.device]), view.width - MARGIN + 10, middle, "left", 11);
  }
}

function paintTitle(row, middle) {
  const first = middle - (row.height - TITLE) / 2;
  pen.fillStyle = theme.paper;
  pen.fillRect(0, first - 16, view.width, row.height - 8);
  for (const { text, size, weight, faint, x, line } of titlePieces(row.timeline)) {
    pen.fillStyle = faint ? theme.faint : theme.ink;
    write(text, x, first + line * TITLE_LINE, "left", size, weight);
  }
}

// What is said of a timeline, on as many lines as it takes.
function titlePieces(timeline) {
  const facts = timeline.facts.map((text) => ({ text, size: 12, weight: 500 }));
  const name = { text: timeline.name, size: 15, weight: 650 };
  const pieces = [name, { text: timeline.size, size: 12, weight: 400, faint: true }, ...facts];
  let [x, line] = [14, 0];
  return pieces.map((piece) => {
    setFont(`${piece.weight} ${piece.size}px ${theme.font}`);
    const { width } = pen.measureText(piece.text);
    if (x > 14 && x + width > view.width - 8) [x, line] = [14, line + 1];
    const placed = { ...piece, x, line };
    x += width + 18;
    return placed;
  });
}

const titleHeight = (timeline) => TITLE + TITLE_LINE * titlePieces(timeline).at(-1).line;

function buildLegend() {
  const used = new Set(TIMELINES.flatMap((timeline) => [...new Set(timeline.kind)]));
  const legend = document.getElementById("legend");
  for (const kind of Object.keys(DATA.kinds).filter((letter) => used.has(letter))) {
    const item = document.createElement("li");
    item.append(swatch(kind), `${kind} ${DATA.kinds[kind].words}`);
    legend.append(item);
  }
}

function swatch(kind) {
  const canvas = document.createElement("canvas");
  canvas.width = 36;
  canvas.height = 14;
  canvas.setAttribute("aria-hidden", "true");
  const brush = canvas.getContext("2d");
  const shades = DATA.kinds[kind].colours;
  const fade = brush.createLinearGradient(0, 0, 36, 0);
  shades.forEach((colour, at) => fade.addColorStop(at / (shades.length - 1), colour));
  for (const fill of [fade, PATTERNS[kind]].filter(Boolean)) {
    brush.fillStyle = fill;
    brush.fillRect(0, 0, 36, 14);
  }
  return canvas;
}
