-- The one description of the store on disk. Statements are separated by a
-- semicolon and an empty line, because drivers run one statement a call.
--
-- Instants are UTC RFC 3339 with exactly nine fraction digits and a Z, so that
-- the order of their text is the order of time. A CHECK of one states its shape,
-- and keeps a blob out, which sorts after every text: such a row would never fall
-- due. A list of more than two values after IN would be built again by each
-- statement.

CREATE TABLE IF NOT EXISTS outbox (
    dispatch_key  TEXT    NOT NULL,            -- identity and idempotency key
    workflow_id   TEXT    NOT NULL,            -- lower-case UUID
    ordinal       INTEGER NOT NULL,
    activity_type TEXT    NOT NULL,
    input         BLOB,                        -- the payload; NULL: it lies in outbox_payload
    status        TEXT    NOT NULL,
    attempt       INTEGER NOT NULL,
    visible_after TEXT    NOT NULL,
    claimed_at    TEXT,
    run_id        TEXT,                        -- lower-case UUID; NULL: none
    namespace     TEXT    NOT NULL DEFAULT 'default',
    task_queue    TEXT    NOT NULL DEFAULT 'default',
    node          TEXT,                        -- NULL: unpinned
    id            INTEGER PRIMARY KEY,         -- staging order; VACUUM keeps it
    content_type  TEXT,                        -- NULL: the payload is a legacy envelope, {"content_type":…,"bytes":[…]}
    fence         INTEGER NOT NULL DEFAULT 0,  -- times claimed or reopened; only ever grows
    last_error    TEXT,
    created_at    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000000Z', 'now')),
    finished_at   TEXT,

    CONSTRAINT outbox_status_is_known
        CHECK (status = 'pending' OR status = 'claimed' OR status = 'done' OR status = 'failed' OR status = 'cancelled'),
    CONSTRAINT outbox_node_is_not_empty
        CHECK (node <> ''),
    CONSTRAINT outbox_only_a_claim_has_claimed_at
        CHECK (claimed_at IS NULL OR status = 'claimed'),
    CONSTRAINT outbox_settled_is_finished
        CHECK ((finished_at IS NULL) = (status = 'pending' OR status = 'claimed')),
    CONSTRAINT outbox_visible_after_is_an_instant
        CHECK (visible_after BETWEEN '0' AND ':' AND visible_after GLOB '????-??-??T??:??:??.?????????Z'),
    CONSTRAINT outbox_claimed_at_is_an_instant
        CHECK (claimed_at IS NULL OR claimed_at BETWEEN '0' AND ':' AND claimed_at GLOB '????-??-??T??:??:??.?????????Z'),
    CONSTRAINT outbox_created_at_is_an_instant
        CHECK (created_at BETWEEN '0' AND ':' AND created_at GLOB '????-??-??T??:??:??.?????????Z'),
    CONSTRAINT outbox_finished_at_is_an_instant
        CHECK (finished_at IS NULL OR finished_at BETWEEN '0' AND ':' AND finished_at GLOB '????-??-??T??:??:??.?????????Z')
);

-- Payloads too large to be rewritten with every change of their row.
CREATE TABLE IF NOT EXISTS outbox_payload (
    id   INTEGER PRIMARY KEY,  -- outbox.id
    data BLOB NOT NULL
);

-- One row: the version of this schema. PRAGMA user_version is the program's.
CREATE TABLE IF NOT EXISTS outbox_schema (version INTEGER NOT NULL);

INSERT INTO outbox_schema (version) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM outbox_schema);

-- Row by key: Append's conflicts, every transition, Get and State.
CREATE UNIQUE INDEX IF NOT EXISTS outbox_key ON outbox (dispatch_key);

-- Due rows in claiming order. The key makes the order total without a sort,
-- also when a fan-out shares one instant; the workflow lets rows of held ones
-- be passed over inside the index.
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (visible_after, dispatch_key, workflow_id) WHERE status = 'pending';

-- The same a route: scoped claims, PendingRoutes, the pending part of CountInFlight.
CREATE INDEX IF NOT EXISTS outbox_route ON outbox (namespace, task_queue, node, visible_after, dispatch_key, workflow_id) WHERE status = 'pending';

-- Claimed rows of a namespace, to be counted, and among them the oldest claims
-- first: stale ones are found by skipping from namespace to namespace.
CREATE INDEX IF NOT EXISTS outbox_claims ON outbox (namespace, claimed_at, dispatch_key) WHERE status = 'claimed';

-- Live rows of a workflow: SettleWorkflow, UnsettledWorkflows. A predicate on
-- the status would have every claim rewrite the entry. The second column lets
-- the first be read from the index alone.
CREATE INDEX IF NOT EXISTS outbox_unsettled ON outbox (workflow_id, finished_at) WHERE finished_at IS NULL;

-- Dead letters, in staging order: List.
CREATE INDEX IF NOT EXISTS outbox_failed ON outbox (id) WHERE status = 'failed';

-- Settled rows by age: Purge.
CREATE INDEX IF NOT EXISTS outbox_finished ON outbox (finished_at) WHERE finished_at IS NOT NULL;

-- A payload goes with its row, whoever deletes or renumbers the row.
CREATE TRIGGER IF NOT EXISTS outbox_row_deleted AFTER DELETE ON outbox
BEGIN
    DELETE FROM outbox_payload WHERE id = OLD.id;
END;

CREATE TRIGGER IF NOT EXISTS outbox_row_renumbered AFTER UPDATE OF id ON outbox WHEN OLD.input IS NULL AND NEW.id <> OLD.id
BEGIN
    UPDATE outbox_payload SET id = NEW.id WHERE id = OLD.id;
END;

CREATE TRIGGER IF NOT EXISTS outbox_row_refilled AFTER UPDATE OF input ON outbox WHEN NEW.input IS NOT NULL
BEGIN
    DELETE FROM outbox_payload WHERE id = NEW.id;
END;

-- And never without it.
CREATE TRIGGER IF NOT EXISTS outbox_payload_deleted BEFORE DELETE ON outbox_payload
WHEN EXISTS (SELECT 1 FROM outbox WHERE id = OLD.id AND input IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'outbox: a payload is deleted with its row');
END;
