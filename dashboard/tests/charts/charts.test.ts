import { expect, test } from "vitest";

import { chartsOf } from "../../src/charts/charts";
import type { Series } from "../../src/charts/lines";

const series = (...names: string[]) => names.map((name) => ({ name }) as Series);

test("each metric of the training has a chart of its own, in the order of names", () => {
  const charts = chartsOf("user", series("loss", "layer10", "accuracy", "layer2", "loss"));
  expect(charts.map((chart) => chart.title)).toEqual(["accuracy", "layer2", "layer10", "loss"]);
  expect(charts[0]?.names).toEqual(["accuracy"]);
});

test("metrics of the machine share charts: the GPUs of a learner, a limit and what it limits, both directions", () => {
  const charts = chartsOf(
    "system",
    series(
      "system/net_out_bytes_per_s",
      "system/gpu1_percent",
      "system/gpu0_percent",
      "system/memory_limit_bytes",
      "system/memory_bytes",
      "system/net_in_bytes_per_s",
      "system/cpu_percent",
    ),
  );
  const parts = charts.map((chart) => [chart.title, chart.names.map(chart.part)]);
  expect(parts).toEqual([
    ["CPU (100 % = one core)", [""]],
    ["Memory", ["", "limit"]],
    ["GPU utilisation", ["GPU 0", "GPU 1"]],
    ["Network", ["in", "out"]],
  ]);
});

test("a metric of the machine that the page does not know has a chart, too", () => {
  const charts = chartsOf("system", series("system/cpu_percent", "system/fan_rpm"));
  expect(charts.map((chart) => chart.title)).toEqual(["CPU (100 % = one core)", "fan_rpm"]);
});

test("each quantity has its unit; bytes have axes in powers of two", () => {
  const names = ["cpu_percent", "memory_bytes", "gpu0_temperature_c", "gpu0_power_w", "disk_read_bytes_per_s"];
  const charts = chartsOf("system", series(...names.map((name) => `system/${name}`)));
  expect(charts.map((chart) => [chart.format(2048.04), chart.binary])).toEqual([
    ["2048 %", false],
    ["2.0 KiB", true],
    ["2048 °C", false],
    ["2048 W", false],
    ["2.0 KiB/s", true],
  ]);
  for (const chart of charts) expect([chart.format(null), chart.format(undefined)]).toEqual(["–", "–"]);
});
