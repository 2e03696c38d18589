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
  if (row.kind === "title") return paintTitle(row.timeline, middle + 3);
  const compute = row.kind === "lane" && row.lane.stream === "compute";
  const words = row.kind === "memory" ? "memory" : compute ? `device ${row.device}` : row.lane.stream;
  pen.fillStyle = compute ? theme.ink : theme.faint;
  write(words, GUTTER - 10, middle, "right", compute ? 12 : 10.5);
  if (row.kind === "memory") {
    write(number(row.timeline.peak[row.device]), view.width - MARGIN + 10, middle, "left", 11);
  }
}

function paintTitle(timeline, y) {
  let x = 14;
  pen.fillStyle = theme.paper;
  pen.fillRect(0, y - 16, view.width, 28);
  const piece = (text, size, weight, colour) => {
    pen.fillStyle = colour;
    write(text, x, y, "left", size, weight);
    x += pen.measureText(text).width + 18;
  };
  piece(timeline.name, 15, 650, theme.ink);
  piece(timeline.size, 12, 400, theme.faint);
  for (const fact of timeline.facts) piece(fact, 12, 500, theme.ink);
}

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
