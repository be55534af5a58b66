/** What the modules of the console use of uPlot, which uPlot.iife.min.js makes a global. */
interface PlotOptions {
  width: number;
  height: number;
  series: Record<string, unknown>[];
  [option: string]: unknown;
}
declare class uPlot {
  constructor(options: PlotOptions, data: (number | null)[][], parent: HTMLElement);
  root: HTMLElement;
  setData(data: (number | null)[][]): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}
interface Window { uPlot: typeof uPlot }
