package engine

import "context"

// Can returns what the database can do. A database of the program's is looked at
// once.
func (db *DB) Can(ctx context.Context) Abilities {
	if known := db.known.Load(); known != nil {
		return db.withKeeps(*known)
	}
	var found Abilities
	s := db.newSession(ctx, unknown)
	defer s.end()
	err := s.do(func() (err error) {
		if s.conn, err = db.pool.Conn(ctx); err == nil {
			found, err = findOut(ctx, s.conn)
		}
		return err
	})
	if err != nil {
		return unknown // for now
	}
	db.known.Store(&found)
	return found
}

// withKeeps adds what is known once the first connection is open.
func (db *DB) withKeeps(can Abilities) Abilities {
	if db.connector != nil {
		if keeps := db.connector.keeps.Load(); keeps != nil {
			can.Keeps = *keeps
		}
	}
	return can
}

// oneAtATime returns what the database is known to do in a transaction that was
// begun elsewhere, without a look at it.
func (db *DB) oneAtATime() Abilities {
	can := unknown
	if known := db.known.Load(); known != nil {
		can = db.withKeeps(*known)
	}
	can.Batch = false
	return can
}
