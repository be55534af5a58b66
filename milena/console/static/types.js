// Types of the server's state, as `GET /api/state` and its deltas have it. See docs/http.md.
export {};

/** A replica as its broker has it: role, log start, local log start, high watermark, last stable offset, log end,
 * highest offset in the tier, bytes, epochs (flat), leader epoch, follower state, followers (flat), maximal ISR, and of
 * the oldest open transaction: producer id, first offset, time of its last batch.
 * @typedef {["L"|"F"|"O", number, number, number, number, number, number, number, number[], number, string, number[], number[], number[]]} Replica
 */

/** leader, leader epoch, partition epoch, replicas, ISR, adding, removing, ELR, replicas by broker, recovery state.
 * @typedef {[number, number, number, number[], number[], number[], number[], number[], Record<string, Replica>, number]} Part
 */

/** @typedef {{id: string, internal: boolean, partitions: (Part | null)[]}} Topic */

/** A fault of a disk, the clock or the tier: the lab command that set it, with its arguments.
 * @typedef {{command: string, path?: string, ms?: number, away?: boolean, delay_ms?: number, lose?: number, odd?: string}} Fault
 */

/**
 * @typedef {object} Node
 * @property {number} id
 * @property {string} role "broker", "controller" or both
 * @property {"up"|"starting"|"paused"|"down"} state
 * @property {number | null} pid
 * @property {string} address
 * @property {number | null} epoch
 * @property {boolean | null} fenced
 * @property {boolean | null} shutting_down
 * @property {string[]} log_dirs
 * @property {number | null} metadata_offset
 * @property {number} leads
 * @property {number} hosts
 * @property {number | null} memory
 * @property {{peer: string, direction: string}[] | null} links
 * @property {Record<string, number> | null} troubles
 * @property {Fault[]} faults
 */

/** @typedef {{id: string, client: string, host: string, assigned: Record<string, number[]>}} Member */

/**
 * @typedef {object} Group
 * @property {string} state
 * @property {string} type
 * @property {string} protocol
 * @property {string | number} coordinator
 * @property {Member[]} members
 * @property {Record<string, Record<string, number>>} offsets
 */

/** @typedef {{n: number, at_ms: number, kind: string, node: string | null, topic: string | null, partition: number | null, text: string, error: boolean}} Event */

/** @typedef {Record<string, unknown>} Rule */

/**
 * @typedef {object} TransactionalId
 * @property {string} state
 * @property {number} producer_id
 * @property {number} producer_epoch
 * @property {number | null} start_ms
 * @property {number | null} update_ms
 * @property {number | null} timeout_ms
 * @property {number} partitions how many
 * @property {string | null} pending
 */

/** What a broker coordinates; `total` is null if it is unknown. A delta has the changed ids; null: not listed any more.
 * @template T
 * @typedef {{counts: Record<string, number>, total: number | null, loading: number, ids: Record<string, T>}} Coordinated
 */

/**
 * @typedef {object} State
 * @property {number} seq
 * @property {string} stream
 * @property {number} time_ms
 * @property {number} interval_ms
 * @property {{id: string, dir: string | null, lab: boolean, bootstrap: string, version: string, limits: string}} cluster
 * @property {Record<string, Node>} nodes
 * @property {Record<string, Topic>} topics
 * @property {Record<string, Group>} groups
 * @property {Record<string, Rule[]>} rules
 * @property {Record<string, Coordinated<TransactionalId>>} transactions by broker
 * @property {Event[]} events
 */

/**
 * @typedef {object} Delta
 * @property {number} seq
 * @property {number} time_ms
 * @property {number} interval_ms
 * @property {Record<string, Node | null>} [nodes]
 * @property {Record<string, {id: string, internal: boolean, count: number} | null>} [topics]
 * @property {[string, number, [number, number, number, number[], number[], number[], number[], number[], number] | null, Record<string, Replica | null>][]} [parts]
 * @property {Record<string, Group | null>} [groups]
 * @property {Record<string, Rule[]>} [rules]
 * @property {Record<string, Coordinated<TransactionalId | null>>} [transactions]
 * @property {Event[]} [events]
 */
