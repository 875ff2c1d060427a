-- The one description of the store on disk. Statements are separated by a
-- semicolon and an empty line, because drivers run one statement a call.
--
-- Instants are UTC RFC 3339 with exactly nine fraction digits and a Z, so that
-- the order of their text is the order of time. The CHECKs state their shape;
-- a typeof is needed beside it because GLOB also matches a blob, and a blob
-- sorts after every text: such a row would never fall due. A list of more than two
-- values after IN would be built anew by each statement.

CREATE TABLE IF NOT EXISTS outbox (
    dispatch_key  TEXT    NOT NULL,  -- identity and idempotency key
    workflow_id   TEXT    NOT NULL,  -- lower-case UUID
    ordinal       INTEGER NOT NULL,
    activity_type TEXT    NOT NULL,
    input         BLOB,              -- the payload; NULL: it lies in outbox_payload
    status        TEXT    NOT NULL CHECK (status = 'pending' OR status = 'claimed' OR status = 'done' OR status = 'failed' OR status = 'cancelled'),
    attempt       INTEGER NOT NULL,
    visible_after TEXT    NOT NULL CHECK (typeof(visible_after) = 'text' AND visible_after GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    claimed_at    TEXT    CHECK (claimed_at IS NULL OR status = 'claimed' AND typeof(claimed_at) = 'text' AND claimed_at GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    run_id        TEXT,              -- lower-case UUID; NULL: none
    namespace     TEXT    NOT NULL DEFAULT 'default',
    task_queue    TEXT    NOT NULL DEFAULT 'default',
    node          TEXT    CHECK (node <> ''),  -- NULL: unpinned
    id            INTEGER PRIMARY KEY,         -- staging order; VACUUM keeps it
    content_type  TEXT,              -- NULL: the payload is a legacy envelope, {"content_type":…,"bytes":[…]}
    fence         INTEGER NOT NULL DEFAULT 0,  -- times claimed or reopened; only ever grows
    last_error    TEXT,
    created_at    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000000Z', 'now'))
                          CHECK (typeof(created_at) = 'text' AND created_at GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z'),
    finished_at   TEXT    CHECK (finished_at IS NULL OR (status = 'done' OR status = 'failed' OR status = 'cancelled') AND typeof(finished_at) = 'text' AND finished_at GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z')
);

-- Payloads too large to be rewritten with every change of their row.
CREATE TABLE IF NOT EXISTS outbox_payload (
    id   INTEGER PRIMARY KEY,  -- outbox.id
    data BLOB NOT NULL
);

-- One row: the version of this schema. PRAGMA user_version is the host's.
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

-- Stale claims, oldest first.
CREATE INDEX IF NOT EXISTS outbox_claimed ON outbox (claimed_at, dispatch_key) WHERE status = 'claimed';

-- Claimed rows of a namespace, to be counted.
CREATE INDEX IF NOT EXISTS outbox_claimed_namespace ON outbox (namespace) WHERE status = 'claimed';

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
