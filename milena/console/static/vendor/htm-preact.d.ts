/** What the modules of the console use of htm-preact.js. */
export type Key = string | number;
export interface VNode { type: unknown; props: Record<string, unknown>; key: Key | null }
export type Child = VNode | string | number | boolean | null | undefined | Child[];
export type Update<S> = (value: S | ((former: S) => S)) => void;
export interface Ref<T> { current: T }
export function h(type: unknown, props: Record<string, unknown> | null, ...children: Child[]): VNode;
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
export function render(node: Child, parent: Element): void;
export class Component<P = Record<string, unknown>, S = Record<string, unknown>> {
  props: P;
  state: S;
  constructor(props?: P);
  setState(change: Partial<S>): void;
  forceUpdate(): void;
}
export function useState<S>(first: S | (() => S)): [S, Update<S>];
export function useReducer<S, A>(step: (state: S, action: A) => S, first: S): [S, (action: A) => void];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useRef<T>(first: T): Ref<T>;
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useCallback<T>(callback: T, inputs: unknown[]): T;
export function useErrorBoundary(report?: (error: Error) => void): [Error | undefined, () => void];
