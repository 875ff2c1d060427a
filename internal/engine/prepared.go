package engine

import (
	"context"
	"database/sql/driver"
)

// prepared are the statements that a connection keeps, so that SQLite compiles
// them once. It compiles one again by itself when the schema has changed.
//
// Not every text is worth keeping: those of an INSERT of many rows differ each
// time. So a text is kept from its second time on, and the oldest gives way.
type prepared struct {
	kept map[string]*keptStmt
	seen map[string]bool
	age  []string // the texts of kept, oldest first
}

// contextStmt is a statement as drivers have them today.
type contextStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// keptStmt is a kept statement. While rows of it are open it cannot run again.
type keptStmt struct {
	contextStmt
	busy bool
}

const (
	mostKept = 64
	mostSeen = 256
)

// keepsStatements reports whether a driver keeps what it prepares and takes
// numbered parameters in it. go-libsql prepares each time again, and refuses these.
func keepsStatements(conn driver.Conn) bool {
	statement, err := conn.Prepare("SELECT ?1, ?1")
	if err != nil {
		return false
	}
	defer statement.Close()
	_, modern := statement.(contextStmt)
	return modern && statement.NumInput() == 1
}

// find returns the kept statement of a text, or nil if it is not to be kept or
// is in use.
func (p *prepared) find(ctx context.Context, conn driver.Conn, query string) *keptStmt {
	if statement, ok := p.kept[query]; ok {
		if statement.busy {
			return nil
		}
		return statement
	}
	if !p.seen[query] {
		if len(p.seen) >= mostSeen {
			clear(p.seen)
		}
		p.seen[query] = true
		return nil
	}
	statement, err := prepare(ctx, conn, query)
	if err != nil {
		return nil // it says so when it runs
	}
	modern, ok := statement.(contextStmt)
	if !ok {
		statement.Close()
		return nil
	}
	if len(p.age) >= mostKept {
		oldest := p.kept[p.age[0]]
		if oldest.busy {
			statement.Close()
			return nil
		}
		p.drop(p.age[0])
	}
	kept := &keptStmt{contextStmt: modern}
	p.kept[query] = kept
	p.age = append(p.age, query)
	return kept
}

// drop keeps a statement no longer.
func (p *prepared) drop(query string) {
	if statement, ok := p.kept[query]; ok {
		delete(p.kept, query)
		for i, text := range p.age {
			if text == query {
				p.age = append(p.age[:i], p.age[i+1:]...)
				break
			}
		}
		statement.Close()
	}
}

// close closes all statements.
func (p *prepared) close() {
	for len(p.age) > 0 {
		p.drop(p.age[0])
	}
}

func prepare(ctx context.Context, conn driver.Conn, query string) (driver.Stmt, error) {
	if preparer, ok := conn.(driver.ConnPrepareContext); ok {
		return preparer.PrepareContext(ctx, query)
	}
	return conn.Prepare(query)
}
