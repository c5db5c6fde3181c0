// The parts of d3-flame-graph and d3-selection that are used here; the packages have no types.
declare module "d3-selection" {
  interface Selection {
    datum(data: unknown): this;
    call(draw: (selection: unknown) => void): this;
  }
  export function select(element: Element): Selection;
}

declare module "d3-flame-graph" {
  interface Node<Datum> {
    data: Datum;
    value: number;
  }
  interface FlameGraph<Datum> {
    (selection: unknown): void;
    width(pixels: number): this;
    cellHeight(pixels: number): this;
    minFrameSize(pixels: number): this;
    inverted(of: boolean): this;
    sort(of: boolean): this;
    transitionDuration(milliseconds: number): this;
    setColorMapper(mapper: (node: Node<Datum>, colour: string) => string): this;
    setLabelHandler(label: (node: Node<Datum>) => string): this;
    setDetailsElement(element: HTMLElement | null): this;
    resetZoom(): void;
    search(term: string): void;
    clear(): void;
    destroy(): void;
  }
  export function flamegraph<Datum>(): FlameGraph<Datum>;
  export default flamegraph;
}
